// Files of the safetensors format, written out as bytes: what is read of them, what is refused, and
// with which words. Where a case has a counterpart among the tests of the format's own library, the
// bytes are the same; names that come twice and tensors that are no objects are refused besides.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/safetensors/header.hpp"
#include "runtime/safetensors/parse_safetensors.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/checkpoint_writer.hpp"

using namespace weightmap;
using namespace std::string_literals;
using test::TemporaryFolder;

namespace {

std::pmr::memory_resource& memory() { return *std::pmr::new_delete_resource(); }

std::string length_of(std::uint64_t header_bytes) {
  std::string length(8, '\0');
  for (char& byte : length) {
    byte = static_cast<char>(header_bytes & 0xFF);
    header_bytes >>= 8;
  }
  return length;
}

// The n-th byte of the data is n, modulo 251.
std::string data_of(std::size_t bytes) {
  std::string data(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i % 251);
  return data;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return length_of(header.size()) + header + data_of(data_bytes);
}

// A file in memory of just its length, behind which a sanitizer would see a read.
class File {
 public:
  explicit File(const std::string& content, const Limits& limits = {})
      : content_(std::as_bytes(std::span(content)).begin(),
                 std::as_bytes(std::span(content)).end()),
        source_(content_),
        input_(source_, 0, source_.size(), memory()) {
    OpenOptions options;
    options.limits = limits;
    OpenStats stats;
    Result<format::Parsed> result = safetensors::parse(input_, options, stats, memory());
    if (result)
      parsed.emplace(std::move(*result));
    else
      error = std::move(result.error());
  }

  std::optional<format::Parsed> parsed;
  Error error;

 private:
  std::vector<std::byte> content_;
  bytes::MemorySource source_;
  format::Input input_;
};

// "name: float32 [2, 3] at 0, 24 bytes; ..." with offsets behind the header.
std::string description(const catalog::Catalog& catalog, const std::string& header) {
  const std::size_t data_begin = 8 + header.size();
  std::string text;
  for (const catalog::Entry& entry : catalog.entries()) {
    text += (text.empty() ? "" : "; ") + std::string(catalog.name(entry)) + ": " +
            std::string(to_string(entry.dtype)) + " [";
    for (std::size_t i = 0; i < entry.rank; ++i)
      text += (i == 0 ? "" : ", ") + std::to_string(catalog.dims(entry)[i]);
    text += "] at " + std::to_string(catalog.storages()[entry.storage].position - data_begin) +
            ", " + std::to_string(entry.nbytes) + " bytes";
  }
  return text;
}

std::string tensors_of(const std::string& header, std::size_t data_bytes) {
  const File file(file_of(header, data_bytes));
  REQUIRE_MESSAGE(file.parsed.has_value(), file.error.message);
  return description(file.parsed->catalog, header);
}

// All that is to be known of a file: its tensors, or what is wrong with it and where.
std::string outcome(const std::string& header, std::size_t data_bytes) {
  const File file(file_of(header, data_bytes));
  if (file.parsed) return description(file.parsed->catalog, header);
  return std::string(to_string(file.error.code)) + ": " + file.error.message + " (at byte " +
         std::to_string(file.error.file_offset) + ")";
}

// `marked` is a header with a ^ before the byte that is to be blamed; without one no byte is.
void check_refused(std::string marked, std::size_t data_bytes, const std::string& message,
                   ErrorCode code = ErrorCode::corrupt, const Limits& limits = {}) {
  std::uint64_t blamed = Error::no_offset;
  if (const std::size_t mark = marked.find('^'); mark != std::string::npos) {
    blamed = 8 + mark;
    marked.erase(mark, 1);
  }
  CAPTURE(marked);
  const File file(file_of(marked, data_bytes), limits);
  REQUIRE_FALSE(file.parsed.has_value());
  CHECK(file.error.code == code);
  CHECK(file.error.message == message);
  CHECK(file.error.file_offset == blamed);
}

// A header with one tensor of this text.
std::string alone(const std::string& tensor) { return "{\"a\":" + tensor + "}"; }

struct Opened {
  explicit Opened(const std::string& content, const OpenOptions& options = {})
      : path(folder.write("model.safetensors", content)), result(Checkpoint::open(path, options)) {}
  const Checkpoint& checkpoint() const {
    REQUIRE_OK(result);
    return *result;
  }
  NamedTensor tensor(std::string_view name) const {
    const auto found = checkpoint().get(name);
    REQUIRE_OK(found);
    return *found;
  }
  TemporaryFolder folder;
  std::filesystem::path path;
  Result<Checkpoint> result;
};

std::vector<std::int64_t> list(std::span<const std::int64_t> values) {
  return {values.begin(), values.end()};
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

// What is accepted.

TEST_CASE("a file without tensors and without metadata is empty") {
  const Opened opened("\2\0\0\0\0\0\0\0{}"s);
  CHECK(opened.checkpoint().tensors().empty());
  CHECK(opened.checkpoint().info().format == Format::safetensors);
  CHECK(opened.checkpoint().info().tensors == 0);
  CHECK(opened.checkpoint().info().file_bytes == 10);
  CHECK(opened.checkpoint().info().pickle_bytes == 2);
  CHECK(opened.checkpoint().root().kind() == Value::Kind::dict);
  CHECK(opened.checkpoint().root().item_count() == 0);
}

TEST_CASE("a file of metadata only has it as its value tree") {
  const Opened opened(file_of(R"({"__metadata__":{"framework":"pt","note":"a \"b\""}})", 0));
  CHECK(opened.checkpoint().tensors().empty());
  const Value root = opened.checkpoint().root();
  REQUIRE(root.item_count() == 2);
  CHECK(root.find("framework")->string() == "pt");
  CHECK(root.find("note")->string() == "a \"b\"");
}

TEST_CASE("metadata keep the order of the file") {
  const File file(file_of(R"({"__metadata__":{"z":"1","a":"2","m":"3","":""}})", 0));
  REQUIRE(file.parsed.has_value());
  const Value root(file.parsed->tree.get(), file.parsed->tree->root());
  std::string keys;
  for (const auto& [key, value] : root.items())
    keys += std::string(*key.string()) + "=" + std::string(*value.string()) + ",";
  CHECK(keys == "z=1,a=2,m=3,=,");
}

TEST_CASE("metadata that are null are none") {
  const File file(file_of(R"({"__metadata__":null,"a":{"dtype":"U8","shape":[1],)"
                          R"("data_offsets":[0,1]}})",
                          1));
  REQUIRE(file.parsed.has_value());
  const Value root(file.parsed->tree.get(), file.parsed->tree->root());
  CHECK(root.kind() == Value::Kind::dict);
  CHECK(root.item_count() == 0);
  CHECK(file.parsed->catalog.size() == 1);
}

TEST_CASE("metadata may stand behind the tensors") {
  CHECK(tensors_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                   R"("__metadata__":{"format":"pt"}})",
                   1) == "a: uint8 [1] at 0, 1 bytes");
}

TEST_CASE("a header with spaces behind it, as the format's own writer pads it") {
  const std::string header = R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}    )";
  REQUIRE(header.size() == 0x40);
  const Opened opened("\x40\0\0\0\0\0\0\0"s + header + "\1\0\0\0\2\0\0\0\3\0\0\0\xff\xff\xff\xff"s);
  const NamedTensor tensor = opened.tensor("test");
  CHECK(tensor.file_offset == 72);
  CHECK(tensor.storage == "test");
  CHECK(tensor.storage_offset == 0);
  CHECK(tensor.location == "cpu");
  CHECK_FALSE(tensor.is_parameter);
  CHECK_FALSE(tensor.requires_grad);
  CHECK(tensor.view.dtype() == DType::int32);
  CHECK(list(tensor.view.shape()) == std::vector<std::int64_t>{2, 2});
  CHECK(list(tensor.view.strides()) == std::vector<std::int64_t>{2, 1});
  const auto elements = tensor.as<std::int32_t>();
  REQUIRE_OK(elements);
  CHECK(std::vector<std::int32_t>(elements->begin(), elements->end()) ==
        std::vector<std::int32_t>{1, 2, 3, -1});
  CHECK(opened.checkpoint().info().storage_alignment == 8);
  CHECK(opened.checkpoint().info().byteorder == "little");
  CHECK(opened.checkpoint().stats().strategy == OffsetStrategy::directory);
}

TEST_CASE("blanks of every kind behind the header are padding") {
  for (const char* padding : {"\r \t\n", " ", "\n\n", "                                        "}) {
    const File file(file_of("{}"s + padding, 0));
    CHECK_MESSAGE(file.parsed.has_value(), file.error.message);
  }
}

TEST_CASE("blanks may stand before the header, too") {
  const Opened opened("\x06\0\0\0\0\0\0\0\t\n{}\r "s);
  CHECK(opened.checkpoint().tensors().empty());
}

TEST_CASE("a scalar has one element and no dimensions") {
  const Opened opened(
      "\x38\0\0\0\0\0\0\0"s
      R"({"test":{"dtype":"I32","shape":[],"data_offsets":[0,4]}})"
      "\0\0\1\0"s);
  const NamedTensor tensor = opened.tensor("test");
  CHECK(tensor.view.rank() == 0);
  CHECK(tensor.view.numel() == 1);
  CHECK(tensor.as<std::int32_t>().value()[0] == 65536);
  CHECK(tensor.file_offset == 64);
}

TEST_CASE("an empty tensor lies where the one before it ends") {
  CHECK(tensors_of(alone(R"({"dtype":"I32","shape":[2,0],"data_offsets":[0,0]})"), 0) ==
        "a: int32 [2, 0] at 0, 0 bytes");
  CHECK(tensors_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                   R"("b":{"dtype":"F64","shape":[0],"data_offsets":[2,2]},)"
                   R"("c":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},)"
                   R"("d":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},)"
                   R"("e":{"dtype":"U8","shape":[0],"data_offsets":[3,3]}})",
                   3) ==
        "a: uint8 [2] at 0, 2 bytes; b: float64 [0] at 2, 0 bytes; "
        "c: uint8 [0] at 2, 0 bytes; d: uint8 [1] at 2, 1 bytes; e: uint8 [0] at 3, 0 bytes");
}

TEST_CASE("an empty tensor may have one size as large as a size can be") {
  CHECK(tensors_of(alone(R"({"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]})"),
                   0) == "a: float32 [0, 9223372036854775807] at 0, 0 bytes");
}

TEST_CASE("each type of the format is the type that torch has for it") {
  // The name, the size of an element in bits, and the element type here.
  constexpr std::array types = {
      std::tuple{"BOOL", 8, DType::boolean},
      std::tuple{"U8", 8, DType::uint8},
      std::tuple{"I8", 8, DType::int8},
      std::tuple{"F8_E5M2", 8, DType::float8_e5m2},
      std::tuple{"F8_E4M3", 8, DType::float8_e4m3fn},
      std::tuple{"F8_E8M0", 8, DType::float8_e8m0fnu},
      std::tuple{"F8_E4M3FNUZ", 8, DType::float8_e4m3fnuz},
      std::tuple{"F8_E5M2FNUZ", 8, DType::float8_e5m2fnuz},
      std::tuple{"I16", 16, DType::int16},
      std::tuple{"U16", 16, DType::uint16},
      std::tuple{"F16", 16, DType::float16},
      std::tuple{"BF16", 16, DType::bfloat16},
      std::tuple{"I32", 32, DType::int32},
      std::tuple{"U32", 32, DType::uint32},
      std::tuple{"F32", 32, DType::float32},
      std::tuple{"C64", 64, DType::complex64},
      std::tuple{"F64", 64, DType::float64},
      std::tuple{"I64", 64, DType::int64},
      std::tuple{"U64", 64, DType::uint64},
  };
  std::string header = "{";
  int end = 0;
  for (const auto& [name, bits, dtype] : types) {
    const int begin = end;
    end += 3 * bits / 8;
    header += (begin == 0 ? "\"" : ",\"") + "of "s + name + "\":{\"dtype\":\"" + name +
              "\",\"shape\":[3],\"data_offsets\":[" + std::to_string(begin) + "," +
              std::to_string(end) + "]}";
  }
  const std::string content = file_of(header + "}", static_cast<std::size_t>(end));
  const Opened opened(content);
  REQUIRE(opened.checkpoint().tensors().size() == types.size());
  std::size_t offset = 8 + header.size() + 1;
  for (const auto& [name, bits, dtype] : types) {
    const std::string_view captured = name;
    CAPTURE(captured);
    const NamedTensor tensor = opened.tensor("of "s + name);
    CHECK(tensor.view.dtype() == dtype);
    CHECK(tensor.view.nbytes() == static_cast<std::uint64_t>(3 * bits / 8));
    CHECK(tensor.file_offset == offset);
    CHECK(text_of(tensor.view.bytes()) == content.substr(offset, tensor.view.nbytes()));
    offset += tensor.view.nbytes();
  }
  CHECK(offset == content.size());
  CHECK(opened.checkpoint().info().unsupported.empty());
}

TEST_CASE("pairs of four-bit floats have half the last dimension") {
  CHECK(tensors_of(alone(R"({"dtype":"F4","shape":[2,4],"data_offsets":[0,4]})"), 4) ==
        "a: float4_e2m1fn_x2 [2, 2] at 0, 4 bytes");
  CHECK(tensors_of(alone(R"({"dtype":"F4","shape":[1,2],"data_offsets":[0,1]})"), 1) ==
        "a: float4_e2m1fn_x2 [1, 1] at 0, 1 bytes");
  CHECK(tensors_of(alone(R"({"dtype":"F4","shape":[3,2],"data_offsets":[0,3]})"), 3) ==
        "a: float4_e2m1fn_x2 [3, 1] at 0, 3 bytes");
  CHECK(tensors_of(alone(R"({"dtype":"F4","shape":[3,0],"data_offsets":[0,0]})"), 0) ==
        "a: float4_e2m1fn_x2 [3, 0] at 0, 0 bytes");
  const Opened opened(file_of(alone(R"({"dtype":"F4","shape":[2,6],"data_offsets":[0,6]})"), 6));
  const NamedTensor tensor = opened.tensor("a");
  CHECK(list(tensor.view.shape()) == std::vector<std::int64_t>{2, 3});
  CHECK(list(tensor.view.strides()) == std::vector<std::int64_t>{3, 1});
}

TEST_CASE("six-bit types have four elements in three bytes") {
  CHECK(tensors_of(alone(R"({"dtype":"F6_E2M3","shape":[2,8],"data_offsets":[0,12]})"), 12) ==
        "a: float6_e2m3 [2, 8] at 0, 12 bytes");
  CHECK(tensors_of(alone(R"({"dtype":"F6_E3M2","shape":[3,0],"data_offsets":[0,0]})"), 0) ==
        "a: float6_e3m2 [3, 0] at 0, 0 bytes");
  const Opened opened(
      file_of(alone(R"({"dtype":"F6_E3M2","shape":[2,4],"data_offsets":[0,6]})"), 6));
  const TensorSlice bytes = opened.tensor("a").view.bits().value();
  CHECK(list(bytes.shape()) == std::vector<std::int64_t>{2, 3});
  CHECK(text_of(bytes.bytes()) == "\0\1\2\3\4\5"s);
}

TEST_CASE("types whose rows are not whole bytes are named as unsupported and not listed") {
  const Opened opened(file_of(R"({"a":{"dtype":"F6_E2M3","shape":[2,2],"data_offsets":[0,3]},)"
                              R"("b":{"dtype":"F4","shape":[2,3],"data_offsets":[3,6]},)"
                              R"("c":{"dtype":"U8","shape":[2],"data_offsets":[6,8]},)"
                              R"("d":{"dtype":"F6_E3M2","shape":[2,2],"data_offsets":[8,11]}})",
                              11));
  CHECK(opened.checkpoint().info().unsupported == std::vector<std::string>{"a", "b", "d"});
  CHECK(opened.checkpoint().info().tensors == 1);
  CHECK_FALSE(opened.checkpoint().contains("a"));
  CHECK(opened.checkpoint().tensors()[0].name == "c");
  CHECK(text_of(opened.tensor("c").view.bytes()) == "\6\7");
}

TEST_CASE("tensors are listed in the order of the file, whatever the order of the header") {
  CHECK(tensors_of(R"({"z":{"dtype":"U8","shape":[1],"data_offsets":[5,6]},)"
                   R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                   R"("a":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}})",
                   6) ==
        "b: uint8 [2] at 0, 2 bytes; a: uint8 [3] at 2, 3 bytes; z: uint8 [1] at 5, 1 bytes");
}

TEST_CASE("fields may come in any order") {
  for (const char* tensor : {R"({"dtype":"I16","shape":[2],"data_offsets":[0,4]})",
                             R"({"dtype":"I16","data_offsets":[0,4],"shape":[2]})",
                             R"({"shape":[2],"dtype":"I16","data_offsets":[0,4]})",
                             R"({"shape":[2],"data_offsets":[0,4],"dtype":"I16"})",
                             R"({"data_offsets":[0,4],"dtype":"I16","shape":[2]})",
                             R"({"data_offsets":[0,4],"shape":[2],"dtype":"I16"})"})
    CHECK(tensors_of(alone(tensor), 4) == "a: int16 [2] at 0, 4 bytes");
}

TEST_CASE("fields that are not known are passed over, whatever they hold") {
  for (const char* field :
       {"0", "-1.5e300", "\"]}\"", "null", "true", "[]", "{}", R"([{"dtype":"U8"},[[]],"\u007d"])",
        R"({"shape":[9],"data_offsets":[7,8],"dtype":7})"})
    for (const char* tensor : {R"({"x":~,"dtype":"I16","shape":[2],"data_offsets":[0,4]})",
                               R"({"dtype":"I16","x":~,"shape":[2],"data_offsets":[0,4]})",
                               R"({"dtype":"I16","shape":[2],"x":~,"data_offsets":[0,4]})",
                               R"({"dtype":"I16","shape":[2],"data_offsets":[0,4],"x":~})"}) {
      std::string header = alone(tensor);
      header.replace(header.find('~'), 1, field);
      CAPTURE(header);
      CHECK(tensors_of(header, 4) == "a: int16 [2] at 0, 4 bytes");
    }
}

TEST_CASE("fields that are not known nest up to the depth of JSON") {
  const auto header = [](std::size_t depth) {
    return alone(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":)" +
                 std::string(depth, '[') + std::string(depth, ']') + "}");
  };
  CHECK(outcome(header(62), 1) == "a: uint8 [1] at 0, 1 bytes");
  CHECK(outcome(header(63), 1) ==
        "corrupt: tensor \"a\": \"x\": nests deeper than 64 containers (at byte 126)");
}

TEST_CASE("names may be any text") {
  const Opened opened(file_of(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                              R"("\ud83d\ude00":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},)"
                              R"("a.\"b\/":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
                              4));
  CHECK(opened.tensor("").index == 0);
  CHECK(opened.tensor("a\0b"s).index == 1);
  CHECK(opened.tensor("\xf0\x9f\x98\x80").index == 2);
  CHECK(opened.tensor("a.\"b/").index == 3);
  CHECK(opened.checkpoint().find_path({"a.\"b/"}).has_value());
  CHECK_FALSE(opened.checkpoint().find_path({"a", "\"b/"}).has_value());
}

TEST_CASE("names with escapes are kept, however many there are in a row") {
  // Of lengths that are kept in the text's object and of such that are not, of known shapes and of
  // others, among metadata and fields with escapes.
  const std::array names = {
      std::pair{R"(\u0061)"s, "a"s},
      std::pair{R"(\u0062)"s, "b"s},
      std::pair{R"(layers.0\t.weight.that.is.longer.than.a.short.text)"s,
                "layers.0\t.weight.that.is.longer.than.a.short.text"s},
      std::pair{"plain"s, "plain"s},
      std::pair{R"(layers.1\t.weight.that.is.longer.than.a.short.text)"s,
                "layers.1\t.weight.that.is.longer.than.a.short.text"s},
      std::pair{R"(\ud83d\ude00\u00e9)"s, "\xf0\x9f\x98\x80\xc3\xa9"s},
      std::pair{R"(\\\/\"\b\f\n\r\t)"s, "\\/\"\b\f\n\r\t"s},
      std::pair{R"(\u0000)"s, "\0"s},
      std::pair{R"(\u0000\u0000)"s, "\0\0"s},
  };
  for (const char* tensor : {R"({"dtype":"U8","shape":[1],"data_offsets":[~,^]})",
                             R"({"shape":[1],"data_offsets":[~,^],"dtype":"\u00558"})",
                             R"({"x\n":"\u0078","dtype":"U8","shape":[1],"data_offsets":[~,^]})"}) {
    CAPTURE(tensor);
    std::string header = R"({"__metadata__":{"\u006b":"\u0076","k2":"\n"})";
    for (std::size_t i = 0; i < names.size(); ++i) {
      std::string text = tensor;
      text.replace(text.find('^'), 1, std::to_string(i + 1));
      text.replace(text.find('~'), 1, std::to_string(i));
      header += ",\"" + names[i].first + "\":" + text;
    }
    const Opened opened(file_of(header + "}", names.size()));
    REQUIRE(opened.checkpoint().tensors().size() == names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      CAPTURE(names[i].second);
      CHECK(opened.checkpoint().tensors()[i].name == names[i].second);
      CHECK(opened.tensor(names[i].second).index == i);
      CHECK(text_of(opened.tensor(names[i].second).view.bytes()) ==
            std::string(1, static_cast<char>(i)));
    }
    CHECK(opened.checkpoint().root().find("k")->string() == "v");
    CHECK(opened.checkpoint().root().find("k2")->string() == "\n");
  }
}

TEST_CASE("a tensor of another name may look like the metadata") {
  CHECK(tensors_of(R"({"__metadata":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                   R"("__METADATA__":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                   2) ==
        "__metadata: uint8 [1] at 0, 1 bytes; __METADATA__: uint8 [1] at 1, 1 bytes");
}

TEST_CASE("numbers from 0 to 7 dimensions are kept as they are") {
  std::string header = "{";
  std::size_t end = 0;
  for (std::size_t rank = 0; rank <= 7; ++rank) {
    std::string shape;
    std::size_t bytes = 2;
    for (std::size_t i = 0; i < rank; ++i) {
      shape += (i == 0 ? "" : ",") + std::to_string(i % 3 + 1);
      bytes *= i % 3 + 1;
    }
    header += (rank == 0 ? "\"r" : ",\"r") + std::to_string(rank) +
              R"(":{"dtype":"BF16","shape":[)" + shape + R"(],"data_offsets":[)" +
              std::to_string(end) + "," + std::to_string(end + bytes) + "]}";
    end += bytes;
  }
  CHECK(tensors_of(header + "}", end) ==
        "r0: bfloat16 [] at 0, 2 bytes; r1: bfloat16 [1] at 2, 2 bytes; "
        "r2: bfloat16 [1, 2] at 4, 4 bytes; r3: bfloat16 [1, 2, 3] at 8, 12 bytes; "
        "r4: bfloat16 [1, 2, 3, 1] at 20, 12 bytes; r5: bfloat16 [1, 2, 3, 1, 2] at 32, 24 bytes; "
        "r6: bfloat16 [1, 2, 3, 1, 2, 3] at 56, 72 bytes; "
        "r7: bfloat16 [1, 2, 3, 1, 2, 3, 1] at 128, 72 bytes");
}

TEST_CASE("the header that torch consolidates a checkpoint into is read without its padding") {
  CHECK(tensors_of(R"({"s0": {"shape": [5, 6], "dtype": "F32", "data_offsets": [0, 120]}, )"
                   R"("bf": {"shape": [3, 3], "dtype": "BF16", "data_offsets": [120, 138]}, )"
                   R"("rep": {"shape": [5, 6], "dtype": "F32", "data_offsets": [138, 258]}})",
                   258) ==
        "s0: float32 [5, 6] at 0, 120 bytes; bf: bfloat16 [3, 3] at 120, 18 bytes; "
        "rep: float32 [5, 6] at 138, 120 bytes");
}

TEST_CASE("tensors may begin at any byte: there are views, which give no unaligned elements") {
  const Opened opened(file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})",
                              9));
  const NamedTensor tensor = opened.tensor("b");
  CHECK(tensor.file_offset == 115);
  CHECK(list(tensor.view.shape()) == std::vector<std::int64_t>{2});
  CHECK(text_of(tensor.view.bytes()) == "\1\2\3\4\5\6\7\x08");
  const auto elements = tensor.view.as<float>();
  REQUIRE_FALSE(elements.has_value());
  CHECK(elements.error().code == ErrorCode::invalid_argument);
  std::array<float, 2> copy{};
  REQUIRE_OK(tensor.view.gather(std::as_writable_bytes(std::span(copy))));
  CHECK(std::memcmp(copy.data(), "\1\2\3\4\5\6\7\x08", 8) == 0);
  copy = {};
  REQUIRE_OK(opened.checkpoint().gather(tensor.view, std::as_writable_bytes(std::span(copy))));
  CHECK(std::memcmp(copy.data(), "\1\2\3\4\5\6\7\x08", 8) == 0);
  CHECK(opened.checkpoint().info().storage_alignment == 1);
  CHECK(opened.tensor("a").as<std::uint8_t>().value()[0] == 0);
}

TEST_CASE("parts of a tensor are views of the same bytes") {
  const Opened opened(file_of(alone(R"({"dtype":"U8","shape":[2,3],"data_offsets":[0,6]})"), 6));
  const NamedTensor tensor = opened.tensor("a");
  const auto row = tensor.view.select(0, 1);
  REQUIRE_OK(row);
  CHECK(text_of(row->bytes()) == "\3\4\5");
  const auto column = tensor.view.narrow(1, 1, 1);
  REQUIRE_OK(column);
  std::array<std::byte, 2> copy{};
  REQUIRE_OK(column->gather(copy));
  CHECK(text_of(copy) == "\1\4");
  CHECK_FALSE(tensor.view.narrow(1, 2, 2).has_value());
}

TEST_CASE("views stay valid when the checkpoint is moved and its file replaced") {
  Opened opened(file_of(alone(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})"), 4));
  const TensorView view = opened.tensor("a").view;
  const Checkpoint moved = std::move(*opened.result);
  const std::filesystem::path other = opened.folder.write(
      "new", file_of(alone(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})"), 1));
  std::filesystem::rename(other, opened.path);
  CHECK(text_of(view.bytes()) == "\0\1\2\3"s);
  CHECK(moved.state() == CheckpointState::replaced);
  const auto again = moved.reopen();
  REQUIRE_OK(again);
  CHECK(again->tensors()[0].view.nbytes() == 1);
}

TEST_CASE("a safetensors file is known by its content, whatever its name and end") {
  const TemporaryFolder folder;
  // The data end as a zip archive does.
  const std::string header = alone(R"({"dtype":"U8","shape":[22],"data_offsets":[0,22]})");
  const std::string content = length_of(header.size()) + header + "PK\5\6" + std::string(18, '\0');
  const auto named = Checkpoint::open(folder.write("model.safetensors", content));
  REQUIRE_OK(named);
  CHECK(named->info().format == Format::safetensors);
  CHECK(text_of(named->find("a")->bytes()).substr(0, 4) == "PK\5\6");
  for (const char* name : {"model.pt", "model", "model.json"}) {
    const auto other = Checkpoint::open(folder.write(name, file_of(header, 22)));
    REQUIRE_OK(other);
    CHECK(other->info().format == Format::safetensors);
  }
}

TEST_CASE("a torch archive as the last tensor does not make an archive of the file") {
  CheckpointWriter writer;
  const std::int64_t size = 5, stride = 1;
  const std::array items = {
      writer.values().string("inner"),
      writer.tensor(writer.add_storage(RecordContent::text("bytes")),
                    {.dtype = DType::uint8, .sizes = {&size, 1}, .strides = {&stride, 1}})};
  std::string archive;
  const Value root = writer.ordered_dict(items);
  REQUIRE_OK(std::move(writer).write(root, [&archive](std::span<const std::byte> part) {
    archive += text_of(part);
    return Result<void>();
  }));
  const TemporaryFolder folder;
  REQUIRE_OK(Checkpoint::open(folder.write("alone.pt", archive)));
  const std::string end = std::to_string(archive.size() + 4);
  const std::string header = R"({"first":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("last":{"dtype":"U8","shape":[)" +
                             std::to_string(archive.size()) + R"(],"data_offsets":[4,)" + end +
                             "]}}";
  for (const char* padding : {"", "       "}) {
    const std::string content =
        length_of(header.size() + std::strlen(padding)) + header + padding + "four" + archive;
    for (const char* name : {"model.safetensors", "model.pt", "model.bin", "model.zip", "model"}) {
      CAPTURE(name);
      const auto opened = Checkpoint::open(folder.write(name, content));
      REQUIRE_OK(opened);
      CHECK(opened->info().format == Format::safetensors);
      REQUIRE(opened->tensors().size() == 2);
      CHECK(opened->tensors()[0].name == "first");
      CHECK(opened->tensors()[1].name == "last");
      CHECK(text_of(opened->find("last")->bytes()) == archive);
      CHECK_FALSE(opened->contains("inner"));
    }
  }
}

TEST_CASE("a header of more than the first read is read whole") {
  std::string header = "{";
  for (int i = 0; i < 3000; ++i)
    header += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) + "," +
              std::to_string(i + 1) + "]}";
  const Opened opened(file_of(header + "}", 3000));
  REQUIRE(header.size() > 100000);
  REQUIRE(opened.checkpoint().tensors().size() == 3000);
  const NamedTensor last = opened.tensor("t2999");
  CHECK(last.file_offset == 8 + header.size() + 1 + 2999);
  CHECK(last.as<std::uint8_t>().value()[0] == 2999 % 251);
}

// What is refused: the frame.

TEST_CASE("refuses a file that is too short for a length") {
  for (std::size_t size = 0; size < 8; ++size) {
    const File file(std::string(size, '\0'));
    REQUIRE_FALSE(file.parsed.has_value());
    CHECK(file.error.code == ErrorCode::corrupt);
    CHECK(file.error.message == "is too short for a safetensors file: it has " +
                                    std::to_string(size) + (size == 1 ? " byte" : " bytes"));
  }
}

TEST_CASE("refuses an empty file and one that ends behind a length that it does not keep") {
  CHECK_FALSE(Opened("").result.has_value());
  const File file("\x3c\0\0\0\0\0\0\0"s);
  REQUIRE_FALSE(file.parsed.has_value());
  CHECK(file.error.code == ErrorCode::corrupt);
  CHECK(file.error.message ==
        "is truncated: the header of 60 bytes leaves the file of 8; the download or copy is "
        "incomplete");
  CHECK(file.error.file_offset == 0);
}

TEST_CASE("refuses a header of more than 100000000 bytes, whether or not the file has them") {
  for (const auto& [length, words] :
       {std::pair{"\x01\xe1\xf5\x05\0\0\0\0"s, "100000001"},
        {"\0\0\0\0\xff\xff\xff\0"s, "72057589742960640"},
        {"\xff\xff\xff\xff\xff\xff\xff\xff"s, "18446744073709551615"}}) {
    const File file(length + "{}");
    REQUIRE_FALSE(file.parsed.has_value());
    CHECK(file.error.code == ErrorCode::corrupt);
    CHECK(file.error.message ==
          "the header of "s + words + " bytes is longer than the 100000000 that the format allows");
    CHECK(file.error.file_offset == 0);
  }
  const File most("\0\xe1\xf5\x05\0\0\0\0{}"s);
  CHECK(most.error.message ==
        "is truncated: the header of 100000000 bytes leaves the file of 10; the download or copy "
        "is incomplete");
}

TEST_CASE("refuses a header that is not UTF-8") {
  const File file("\1\0\0\0\0\0\0\0\xff"s);
  REQUIRE_FALSE(file.parsed.has_value());
  CHECK(file.error.code == ErrorCode::corrupt);
  CHECK(file.error.message == "the header is not JSON");
  CHECK(file.error.file_offset == 8);
  check_refused("{\"a^\xff\":{}}", 0, "the header is not JSON");
}

TEST_CASE("refuses a header that is not JSON") {
  check_refused("{^", 0, "the header is not JSON");
  check_refused("^", 0, "the header is not JSON");
  check_refused("^\0\0"s, 0, "the header is not JSON");
  check_refused("^\xef\xbb\xbf{}", 0, "the header is not JSON");
  check_refused("{}^{}", 0, "the header is not JSON");
  check_refused("{} ^x", 0, "the header is not JSON");
  check_refused("{^,}", 0, "the header is not JSON");
  check_refused("{^/**/}", 0, "the header is not JSON");
  check_refused("{}^//", 0, "the header is not JSON");
  check_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},^})", 0,
                "the header is not JSON");
}

TEST_CASE("refuses zeros as padding") {
  check_refused("{}^\0"s, 0, "the header is not JSON");
  check_refused("{} ^\0\0\0\0\0"s, 0, "the header is not JSON");
}

TEST_CASE("refuses a header that is no object") {
  check_refused("^[]", 0, "the header expected an object, found an array");
  check_refused("^null", 0, "the header expected an object, found null");
  check_refused(" ^\"a\"", 0, "the header expected an object, found a string");
  check_refused("^1", 0, "the header expected an object, found a number");
}

TEST_CASE("refuses bytes behind the last tensor, and bytes that are missing") {
  const std::string header = alone(R"({"dtype":"I32","shape":[2,2],"data_offsets":[0,16]})");
  check_refused(header, 17, "the tensors have 16 bytes by the header, and there are 17 behind it");
  check_refused(header, 39, "the tensors have 16 bytes by the header, and there are 39 behind it");
  check_refused(header, 14,
                "is truncated: the tensors have 16 bytes by the header, and there are 14 behind "
                "it; the download or copy is incomplete");
  check_refused(header, 0,
                "is truncated: the tensors have 16 bytes by the header, and there are 0 behind it; "
                "the download or copy is incomplete");
  check_refused("{}", 1, "the tensors have 0 bytes by the header, and there are 1 behind it");
}

// What is refused: where the tensors lie.

TEST_CASE("refuses a first tensor that does not begin where the data do") {
  check_refused(R"({^"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
                "tensor \"a\": data_offsets [1, 3], expected to begin at 0, where the tensor "
                "before it ends");
}

TEST_CASE("refuses a hole between two tensors") {
  check_refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                R"(^"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
                5,
                "tensor \"b\": data_offsets [3, 5], expected to begin at 2, where the tensor "
                "before it ends");
}

TEST_CASE("refuses tensors that overlap, and many that share all their bytes") {
  check_refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                R"(^"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                3,
                "tensor \"b\": data_offsets [1, 3], expected to begin at 2, where the tensor "
                "before it ends");
  std::string header = "{";
  for (int i = 0; i < 10; ++i)
    header += (i == 0   ? "\"weight_"
               : i == 1 ? ",^\"weight_"
                        : ",\"weight_") +
              std::to_string(i) + R"(":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]})";
  check_refused(header + "}", 16,
                "tensor \"weight_1\": data_offsets [0, 16], expected to begin at 16, where the "
                "tensor before it ends");
}

TEST_CASE("refuses an empty tensor within another, or behind the last") {
  check_refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                R"(^"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
                2,
                "tensor \"b\": data_offsets [1, 1], expected to begin at 2, where the tensor "
                "before it ends");
  check_refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                R"(^"b":{"dtype":"U8","shape":[0],"data_offsets":[3,3]}})",
                2,
                "tensor \"b\": data_offsets [3, 3], expected to begin at 2, where the tensor "
                "before it ends");
}

TEST_CASE("refuses a tensor that ends before it begins") {
  check_refused(R"({^"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", 2,
                "tensor \"a\" of U8 and shape [2] needs 2 bytes: data_offsets [2, 0]");
  check_refused(
      R"({^"a":{"dtype":"U8","shape":[2],"data_offsets":[18446744073709551615,1]}})", 2,
      "tensor \"a\" of U8 and shape [2] needs 2 bytes: data_offsets [18446744073709551615, 1]");
}

TEST_CASE("refuses offsets at the end of 64 bits") {
  check_refused(
      R"({^"a":{"dtype":"U8","shape":[1],)"
      R"("data_offsets":[18446744073709551614,18446744073709551615]}})",
      1,
      "tensor \"a\": data_offsets [18446744073709551614, 18446744073709551615], expected to begin "
      "at 0, where the tensor before it ends");
  check_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,^18446744073709551616]}})", 1,
                "tensor \"a\": data_offsets: a number is larger than 2^64 - 1");
}

TEST_CASE("refuses another number of bytes than type and shape need") {
  check_refused(R"({^"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,4]}})", 4,
                "tensor \"test\" of I32 and shape [2, 2] needs 16 bytes: data_offsets [0, 4]");
  check_refused(R"({^"a":{"dtype":"F64","shape":[],"data_offsets":[0,4]}})", 4,
                "tensor \"a\" of F64 and shape [] needs 8 bytes: data_offsets [0, 4]");
  check_refused(R"({^"a":{"dtype":"U8","shape":[0],"data_offsets":[0,1]}})", 1,
                "tensor \"a\" of U8 and shape [0] needs 0 bytes: data_offsets [0, 1]");
  check_refused(R"({^"a":{"dtype":"U8","shape":[1],"data_offsets":[0,0]}})", 0,
                "tensor \"a\" of U8 and shape [1] needs 1 byte: data_offsets [0, 0]");
  check_refused(R"({^"a":{"dtype":"F4","shape":[1,2],"data_offsets":[0,2]}})", 2,
                "tensor \"a\" of F4 and shape [1, 2] needs 1 byte: data_offsets [0, 2]");
}

TEST_CASE("refuses elements that together are no whole bytes") {
  check_refused(R"({^"a":{"dtype":"F4","shape":[1,3],"data_offsets":[0,2]}})", 2,
                "tensor \"a\" of F4 and shape [1, 3] has 12 bits, which are no whole bytes");
  check_refused(R"({^"a":{"dtype":"F4","shape":[],"data_offsets":[0,1]}})", 1,
                "tensor \"a\" of F4 and shape [] has 4 bits, which are no whole bytes");
  check_refused(R"({^"a":{"dtype":"F6_E2M3","shape":[3],"data_offsets":[0,3]}})", 3,
                "tensor \"a\" of F6_E2M3 and shape [3] has 18 bits, which are no whole bytes");
}

TEST_CASE("refuses shapes whose bits do not fit 64 bits") {
  check_refused(
      R"({^"a":{"dtype":"I32","shape":[2,9223372036854775807],"data_offsets":[0,16]}})", 16,
      "tensor \"a\" of I32 and shape [2, 9223372036854775807] has more than 2^64 - 1 bits");
  check_refused(
      R"({^"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
      "tensor \"a\" of U8 and shape [4294967296, 4294967296] has more than 2^64 - 1 bits");
  // The order counts: the product is looked at from the left.
  check_refused(
      R"({^"a":{"dtype":"U8","shape":[9223372036854775807,9223372036854775807,0],)"
      R"("data_offsets":[0,0]}})",
      0,
      "tensor \"a\" of U8 and shape [9223372036854775807, 9223372036854775807, 0] has more than "
      "2^64 - 1 bits");
}

TEST_CASE("refuses sizes beyond 2^63 - 1, in empty tensors, too") {
  check_refused(R"({"a":{"dtype":"I32","shape":[2,^18446744073709551614],"data_offsets":[0,16]}})",
                16,
                "tensor \"a\" has the size 18446744073709551614, which is larger than 2^63 - 1");
  check_refused(R"({"a":{"dtype":"U8","shape":[0,^9223372036854775808],"data_offsets":[0,0]}})", 0,
                "tensor \"a\" has the size 9223372036854775808, which is larger than 2^63 - 1");
}

// What is refused: what stands of a tensor in the header.

TEST_CASE("refuses tensors of one name, however it is written") {
  check_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                R"(^"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                2, "the file has tensor \"a\" twice");
  check_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                R"(^"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                3, "the file has tensor \"a\" twice");
  // The second one lies before the first.
  check_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                R"(^"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                2, "the file has tensor \"a\" twice");
  check_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                R"(^"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                0, "the file has tensor \"a\" twice");
}

TEST_CASE("refuses tensors of one name of which one or both have a type that is not listed") {
  const auto six = [](const char* offsets) {
    return R"("a":{"dtype":"F6_E2M3","shape":[2,2],"data_offsets":)"s + offsets + "}";
  };
  const auto bytes = [](const char* offsets) {
    return R"("a":{"dtype":"U8","shape":[3],"data_offsets":)"s + offsets + "}";
  };
  const std::string twice = "the file has tensor \"a\" twice";
  check_refused("{" + six("[0,3]") + ",^" + six("[3,6]") + "}", 6, twice);
  check_refused("{" + six("[0,3]") + ",^" + bytes("[3,6]") + "}", 6, twice);
  check_refused("{" + bytes("[0,3]") + ",^" + six("[3,6]") + "}", 6, twice);
  check_refused("{" + bytes("[3,6]") + ",^" + six("[0,3]") + "}", 6, twice);
  check_refused("{" + six("[0,3]") + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[6,7]},)" +
                    R"(^"\u0061":{"dtype":"F4","shape":[2,3],"data_offsets":[3,6]}})",
                7, twice);
  check_refused(R"({"a":{"dtype":"F6_E3M2","shape":[0,2],"data_offsets":[0,0]},)"
                R"(^"a":{"dtype":"F6_E3M2","shape":[0,2],"data_offsets":[0,0]}})",
                0, twice);
}

TEST_CASE("refuses metadata that come twice, and keys that come twice in them") {
  check_refused(R"({"__metadata__":{},^"__metadata__":{}})", 0,
                "the header has __metadata__ twice");
  check_refused(R"({"__metadata__":null,^"\u005f_metadata__":{}})", 0,
                "the header has __metadata__ twice");
  check_refused(R"({"__metadata__":{"a":"1",^"a":"1"}})", 0,
                "__metadata__: an object has the key \"a\" twice");
  check_refused(R"({"__metadata__":{"a":"1","b":"2",^"\u0061":"3"}})", 0,
                "__metadata__: an object has the key \"a\" twice");
}

TEST_CASE("refuses metadata that are no texts") {
  for (const char* value : {"1", "null", "true", "[]", "{}", "[\"a\"]"}) {
    const File file(file_of(R"({"__metadata__":{"k":)" + std::string(value) + "}}", 0));
    REQUIRE_FALSE(file.parsed.has_value());
    CHECK(file.error.code == ErrorCode::corrupt);
    CHECK(file.error.message.starts_with("__metadata__: expected a string, found "));
    CHECK(file.error.file_offset == 8 + 21);
  }
  check_refused(R"({"__metadata__":{"dtype":"U8","shape":^[1],"data_offsets":[0,1]}})", 1,
                "__metadata__: expected a string, found an array");
  check_refused(R"({"__metadata__":{"a":"1","\u0062":"2","c": ^3,"d":[]}})", 0,
                "__metadata__: expected a string, found a number");
  check_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"__metadata__":{"k":^{}}})",
                0, "__metadata__: expected a string, found an object");
  check_refused(R"({"__metadata__":{"k":"\^x"}})", 0, "__metadata__: is not JSON");
  for (const char* value : {"[]", "\"a\"", "1", "true"}) {
    const File file(file_of(R"({"__metadata__":)" + std::string(value) + "}", 0));
    REQUIRE_FALSE(file.parsed.has_value());
    CHECK(file.error.code == ErrorCode::corrupt);
    CHECK(file.error.message.starts_with("__metadata__: expected an object, found "));
    CHECK(file.error.file_offset == 8 + 16);
  }
}

TEST_CASE("refuses a field that comes twice") {
  check_refused(R"({"a":{"dtype":"U8",^"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
                "tensor \"a\" has dtype twice");
  check_refused(R"({"a":{"dtype":"U8","shape":[1],^"shape":[1],"data_offsets":[0,1]}})", 1,
                "tensor \"a\" has shape twice");
  check_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],^"data_offsets":[0,1]}})", 1,
                "tensor \"a\" has data_offsets twice");
  check_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],^"\u0064type":"U8"}})", 1,
                "tensor \"a\" has dtype twice");
}

TEST_CASE("refuses a tensor without one of its three fields") {
  check_refused(R"({^"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "tensor \"a\" has no dtype");
  check_refused(R"({^"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "tensor \"a\" has no shape");
  check_refused(R"({^"a":{"dtype":"U8","shape":[1]}})", 1, "tensor \"a\" has no data_offsets");
  check_refused(R"({^"a":{}})", 0, "tensor \"a\" has no dtype");
  check_refused(R"({^"a":{"Dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
                "tensor \"a\" has no dtype");
}

TEST_CASE("refuses a tensor that is no object") {
  check_refused(R"({"a":^["I32",[1],[0,4]]})", 4,
                "tensor \"a\": expected an object, found an array");
  check_refused(R"({"a":^null})", 0, "tensor \"a\": expected an object, found null");
  check_refused(R"({"a":^"pt"})", 0, "tensor \"a\": expected an object, found a string");
  check_refused(R"({"a":^1})", 0, "tensor \"a\": expected an object, found a number");
}

TEST_CASE("refuses types that it does not know, and those that are written in another way") {
  for (const char* name : {"F128", "C128", "f32", "float32", " F32", "F32 ", "", "I4", "F8",
                           "BOOLEAN", "F8_E4M3FN", "F32\\u0000"}) {
    std::string shown = name;
    if (const auto end = shown.find("\\u0000"); end != std::string::npos)
      shown.replace(end, 6, "\\x00");
    check_refused(
        R"({"a":{"dtype":^")" + std::string(name) + R"(","shape":[1],"data_offsets":[0,4]}})", 4,
        "tensor \"a\" has the dtype \"" + shown + "\", which safetensors does not know");
  }
}

TEST_CASE("a type may be written with escapes") {
  CHECK(tensors_of(alone(R"({"dtype":"\u0046\u00332","shape":[1],"data_offsets":[0,4]})"), 4) ==
        "a: float32 [1] at 0, 4 bytes");
}

TEST_CASE("refuses a type that is no text") {
  check_refused(R"({"a":{"dtype":^{"I32":null},"shape":[1],"data_offsets":[0,4]}})", 4,
                "tensor \"a\": dtype: expected a string, found an object");
  check_refused(R"({"a":{"dtype":^null,"shape":[1],"data_offsets":[0,4]}})", 4,
                "tensor \"a\": dtype: expected a string, found null");
  check_refused(R"({"a":{"dtype":^["F32"],"shape":[1],"data_offsets":[0,4]}})", 4,
                "tensor \"a\": dtype: expected a string, found an array");
}

TEST_CASE("refuses shapes that are no arrays of whole numbers") {
  for (const auto& [shape, words] :
       {std::pair{"[^4.0]", "expected a whole number, found a number"},
        {"[^4e0]", "expected a whole number, found a number"},
        {"[^-1]", "expected a whole number, found a number"},
        {"[^-0]", "expected a whole number, found a number"},
        {"[^\"1\"]", "expected a whole number, found a string"},
        {"[^null]", "expected a whole number, found null"},
        {"[^[1]]", "expected a whole number, found an array"},
        {"[0^1]", "is not JSON"},
        {"[^+1]", "is not JSON"},
        {"[1,^]", "is not JSON"},
        {"[1^;2]", "is not JSON"},
        {"[^18446744073709551616]", "a number is larger than 2^64 - 1"},
        {"^{}", "expected an array, found an object"},
        {"^null", "expected an array, found null"},
        {"^4", "expected an array, found a number"}})
    check_refused(
        R"({"a":{"dtype":"U8","shape":)" + std::string(shape) + R"(,"data_offsets":[0,1]}})", 1,
        "tensor \"a\": shape: "s + words);
}

TEST_CASE("refuses data_offsets that are not two whole numbers") {
  for (const auto& [offsets, words] :
       {std::pair{"[0,^1.0]", "expected a whole number, found a number"},
        {"[^-0,1]", "expected a whole number, found a number"},
        {"[0,^1e0]", "expected a whole number, found a number"},
        {"[0,^\"1\"]", "expected a whole number, found a string"},
        {"[0,0^1]", "is not JSON"},
        {"[0^0,1]", "is not JSON"},
        {"[0,1^", "is not JSON"},
        {"[0 ^1]", "is not JSON"},
        {"^\"0,1\"", "expected an array, found a string"},
        {"^{}", "expected an array, found an object"}})
    check_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":)" + std::string(offsets) + "}}",
                  1, "tensor \"a\": data_offsets: "s + words);
  for (const auto& [offsets, words] : {std::pair{"^[]", "0 data_offsets"},
                                       {"^[0]", "1 data_offset"},
                                       {"^[0,1,1]", "3 data_offsets"},
                                       {"^[0,0,0,1]", "4 data_offsets"},
                                       {"  ^[ 0 ] ", "1 data_offset"}}) {
    check_refused(
        alone(R"({"dtype":"U8","shape":[1],"data_offsets":)" + std::string(offsets) + "}"), 1,
        "tensor \"a\" has "s + words + ", expected 2");
    // Behind a shape that is known, and before one.
    check_refused(R"({"z":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                  R"("a":{"dtype":"U8","shape":[1],"data_offsets":)" +
                      std::string(offsets) + "}}",
                  2, "tensor \"a\" has "s + words + ", expected 2");
    check_refused(
        alone(R"({"data_offsets":)" + std::string(offsets) + R"(,"dtype":"U8","shape":[1]})"), 1,
        "tensor \"a\" has "s + words + ", expected 2");
  }
}

TEST_CASE("refuses names and other texts that JSON does not have") {
  check_refused("{\"a^\n\":{}}", 0, "the header is not JSON");
  check_refused(R"({"\^ud800":{}})", 0, "the header is not JSON");
  check_refused(R"({"\^x41":{}})", 0, "the header is not JSON");
  check_refused("{\"a\":{\"dtype\":\"U8\",\"x\":\"^\1\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
                "tensor \"a\": \"x\": is not JSON");
  check_refused(R"({"a":{"dtype":"U8","x":{"y":1,^"y":2},"shape":[1],"data_offsets":[0,1]}})", 1,
                "tensor \"a\": \"x\": an object has the key \"y\" twice");
}

TEST_CASE("an error escapes what the file calls its tensors") {
  check_refused(R"({^"\u001b[31m\"":{"shape":[1],"data_offsets":[0,1]}})", 1,
                "tensor \"\\x1B[31m\\x22\" has no dtype");
}

TEST_CASE("an error of a file names it and the byte in it") {
  const Opened opened(file_of(alone(R"({"dtype":"U8","shape":[0,01],"data_offsets":[0,0]})"), 0));
  REQUIRE_FALSE(opened.result.has_value());
  CHECK(opened.result.error().file == opened.path.string());
  CHECK(opened.result.error().message == "tensor \"a\": shape: is not JSON");
  CHECK(opened.result.error().file_offset == 39);
}

// Limits.

TEST_CASE("takes as many tensors as the limit and not one more") {
  const std::string two = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                          R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]})";
  Limits limits;
  limits.tensors = 2;
  CHECK(File(file_of(two + R"(,"__metadata__":{}})", 2), limits).parsed.has_value());
  check_refused(two + R"(,^"c":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", 3,
                "the file has more than 2 tensors, which is the limit", ErrorCode::limit_exceeded,
                limits);
}

TEST_CASE("takes as many dimensions as the limit and not one more") {
  Limits limits;
  limits.rank = 3;
  CHECK(File(file_of(alone(R"({"dtype":"U8","shape":[1,1,1],"data_offsets":[0,1]})"), 1), limits)
            .parsed.has_value());
  check_refused(R"({"a":{"dtype":"U8","shape":[1,1,1,^1],"data_offsets":[0,1]}})", 1,
                "tensor \"a\" has more than 3 dimensions, which is the limit",
                ErrorCode::limit_exceeded, limits);
  const auto header = [](std::size_t rank) {
    std::string shape = "1";
    for (std::size_t i = 1; i < rank; ++i) shape += ",1";
    return alone(R"({"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,1]})");
  };
  CHECK(File(file_of(header(64), 1)).parsed.has_value());
  CHECK(File(file_of(header(65), 1)).error.message ==
        "tensor \"a\" has more than 64 dimensions, which is the limit");
  // A catalog holds no more than 255, whatever is allowed.
  limits.rank = 1000;
  CHECK(File(file_of(header(255), 1), limits).parsed.has_value());
  CHECK(File(file_of(header(256), 1), limits).error.message ==
        "tensor \"a\" has more than 255 dimensions, which is the limit");
}

TEST_CASE("takes a header as long as the limit and not one byte longer") {
  Limits limits;
  limits.pickle_bytes = 60;
  const std::string header = alone(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})");
  REQUIRE(header.size() == 53);
  CHECK(File(file_of(header + std::string(7, ' '), 1), limits).parsed.has_value());
  const File file(file_of(header + std::string(8, ' '), 1), limits);
  REQUIRE_FALSE(file.parsed.has_value());
  CHECK(file.error.code == ErrorCode::limit_exceeded);
  CHECK(file.error.message == "the header of 61 bytes is longer than the limit of 60");
  CHECK(file.error.file_offset == 0);
}

// Tensors of a shape that came before are read in another way, which must give the same.

namespace {

// Reads a header as of a file with this much data, which need not exist.
struct Header {
  Header(const std::string& text, std::uint64_t data_bytes)
      : text_(text.begin(), text.end()), header({text_.data(), text_.size()}, memory()) {
    result = safetensors::read_header(header, data_bytes, {}, memory());
  }

 private:
  std::vector<char> text_;

 public:
  safetensors::Header header;
  Result<void> result;
};

constexpr std::string_view known = R"({"dtype":"F32","shape":[2])";
// The same tensor, and as long, but its text is not of the kind that is remembered.
constexpr std::string_view unknown = R"({"shape":[2],"dtype":"F32")";
static_assert(known.size() == unknown.size());

// Whether the text of a second tensor, behind its shape, is taken in the same way whether or not
// the shape is known, or refused with the same words at the same byte.
bool is_read_alike(const std::string& rest, std::size_t data_bytes) {
  const std::string second = R"(,"data_offsets":[0,8]},"b":)" + std::string(known) + rest;
  const std::string first = outcome(R"({"a":)" + std::string(known) + second, data_bytes);
  return first == outcome(R"({"a":)" + std::string(unknown) + second, data_bytes);
}

}  // namespace

TEST_CASE("tensors of one shape are told apart by their offsets") {
  CHECK(tensors_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                   R"("b":{"dtype":"F32","shape":[2],"data_offsets":[24,32]},)"
                   R"("c":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)"
                   R"("d":{"dtype":"F32","shape":[2],"data_offsets":[16,24]}})",
                   32) ==
        "a: float32 [2] at 0, 8 bytes; c: float32 [2] at 8, 8 bytes; "
        "d: float32 [2] at 16, 8 bytes; b: float32 [2] at 24, 8 bytes");
}

TEST_CASE("a tensor of a known shape must have just its bytes, too") {
  for (const auto& [offsets, data_bytes] : {std::pair{"[8,15]", 15u},
                                            {"[8,17]", 17},
                                            {"[8,8]", 8},
                                            {"[16,8]", 16},
                                            {"[9,16]", 16},
                                            {"[8,24]", 24},
                                            {"[8,99999999999999]", 16}})
    check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                  R"(^"b":{"dtype":"F32","shape":[2],"data_offsets":)" +
                      std::string(offsets) + "}}",
                  data_bytes,
                  "tensor \"b\" of F32 and shape [2] needs 8 bytes: data_offsets " +
                      std::string(offsets).replace(std::string(offsets).find(','), 1, ", "));
}

TEST_CASE("a tensor of a known shape must lie behind the one before it, too") {
  check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                R"(^"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                16,
                "tensor \"b\": data_offsets [0, 8], expected to begin at 8, where the tensor "
                "before it ends");
  check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                R"(^"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})",
                20,
                "tensor \"b\": data_offsets [12, 20], expected to begin at 8, where the tensor "
                "before it ends");
}

TEST_CASE("a known shape of one type says nothing of another type or another shape") {
  CHECK(tensors_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                   R"("b":{"dtype":"I32","shape":[2],"data_offsets":[8,16]},)"
                   R"("c":{"dtype":"F32","shape":[2,1],"data_offsets":[16,24]},)"
                   R"("d":{"dtype":"U32","shape":[2],"data_offsets":[24,32]},)"
                   R"("e":{"dtype":"F32","shape":[1,2],"data_offsets":[32,40]},)"
                   R"("f":{"dtype":"I32","shape":[2],"data_offsets":[40,48]}})",
                   48) ==
        "a: float32 [2] at 0, 8 bytes; b: int32 [2] at 8, 8 bytes; "
        "c: float32 [2, 1] at 16, 8 bytes; d: uint32 [2] at 24, 8 bytes; "
        "e: float32 [1, 2] at 32, 8 bytes; f: int32 [2] at 40, 8 bytes");
}

TEST_CASE("known shapes keep the types that have no elements, and halved dimensions") {
  const std::string header = R"({"a":{"dtype":"F4","shape":[2,4],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F4","shape":[2,4],"data_offsets":[4,8]},)"
                             R"("c":{"dtype":"F4","shape":[2,3],"data_offsets":[8,11]},)"
                             R"("d":{"dtype":"F4","shape":[2,3],"data_offsets":[11,14]},)"
                             R"("e":{"dtype":"F6_E2M3","shape":[2,2],"data_offsets":[14,17]},)"
                             R"("f":{"dtype":"F6_E2M3","shape":[2,2],"data_offsets":[17,20]},)"
                             R"("g":{"dtype":"F4","shape":[2,4],"data_offsets":[20,24]}})";
  const File file(file_of(header, 24));
  REQUIRE(file.parsed.has_value());
  CHECK(description(file.parsed->catalog, header) ==
        "a: float4_e2m1fn_x2 [2, 2] at 0, 4 bytes; b: float4_e2m1fn_x2 [2, 2] at 4, 4 bytes; "
        "g: float4_e2m1fn_x2 [2, 2] at 20, 4 bytes");
  CHECK(file.parsed->facts.unsupported == std::vector<std::string>{"c", "d", "e", "f"});
}

TEST_CASE("a shape is not taken for known by what another field holds") {
  // The first array that ends is not the shape.
  CHECK(tensors_of(R"({"a":{"dtype":"F32","x":[2],"shape":[1],"data_offsets":[0,4]},)"
                   R"("b":{"dtype":"F32","x":[2],"shape":[2],"data_offsets":[4,12]}})",
                   12) == "a: float32 [1] at 0, 4 bytes; b: float32 [2] at 4, 8 bytes");
  CHECK(tensors_of(R"({"a":{"dtype":"F32","x]":0,"shape":[1],"data_offsets":[0,4]},)"
                   R"("b":{"dtype":"F32","x]":0,"shape":[2],"data_offsets":[4,12]}})",
                   12) == "a: float32 [1] at 0, 4 bytes; b: float32 [2] at 4, 8 bytes");
  CHECK(tensors_of(R"({"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1]},)"
                   R"("b":{"data_offsets":[4,8],"dtype":"F32","shape":[1]}})",
                   8) == "a: float32 [1] at 0, 4 bytes; b: float32 [1] at 4, 4 bytes");
  check_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"F32","shape":[1],^"shape":[2],"data_offsets":[4,12]}})",
                12, "tensor \"b\" has shape twice");
  check_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8],^"dtype":"I32"}})",
                8, "tensor \"b\" has dtype twice");
  check_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8],^"data_offsets":[4,8]}})",
                8, "tensor \"b\" has data_offsets twice");
}

TEST_CASE("no field is taken from a tensor that began with the same text") {
  check_refused(R"({"a":{"dtype":"F32","x":[2],"shape":[1],"data_offsets":[0,4]},)"
                R"(^"b":{"dtype":"F32","x":[2],"data_offsets":[4,8]},"c":{}})",
                8, "tensor \"b\" has no shape");
  check_refused(R"({"a":{"shape":[1],"dtype":"F32","data_offsets":[0,4]},)"
                R"(^"b":{"shape":[1],"data_offsets":[4,8]},"c":{}            })",
                8, "tensor \"b\" has no dtype");
  check_refused(R"({"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1]},)"
                R"("b":{"data_offsets":[0,4],^"data_offsets":[4,8]},"c":{}   })",
                8, "tensor \"b\" has data_offsets twice");
}

TEST_CASE("a known shape with another field before it is the same with that field") {
  CHECK(tensors_of(R"({"a":{"x":1,"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("b":{"x":1,"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                   R"("c":{"x":2,"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                   12) ==
        "a: float32 [1] at 0, 4 bytes; b: float32 [1] at 4, 4 bytes; "
        "c: float32 [1] at 8, 4 bytes");
}

TEST_CASE("more shapes than are kept in mind give the tensors that they say") {
  std::string header = "{";
  std::size_t end = 0;
  for (int round = 0; round < 3; ++round)
    for (std::size_t size = 0; size < 300; ++size) {
      header += (end == 0 && size == 0 ? "\"" : ",\"") + std::to_string(round) + "." +
                std::to_string(size) + R"(":{"dtype":"U8","shape":[)" + std::to_string(size) +
                R"(],"data_offsets":[)" + std::to_string(end) + "," + std::to_string(end + size) +
                "]}";
      end += size;
    }
  const File file(file_of(header + "}", end));
  REQUIRE_MESSAGE(file.parsed.has_value(), file.error.message);
  const catalog::Catalog& catalog = file.parsed->catalog;
  REQUIRE(catalog.size() == 900);
  for (std::size_t i = 0; i < 900; ++i) {
    const std::uint32_t found =
        catalog.find(std::to_string(i / 300) + "." + std::to_string(i % 300));
    REQUIRE(found != catalog::Catalog::none);
    CHECK(catalog.dims(catalog[found])[0] == static_cast<std::int64_t>(i % 300));
    CHECK(catalog[found].nbytes == i % 300);
  }
}

TEST_CASE("two shapes that take turns are those that each tensor says") {
  const TemporaryFolder folder;
  constexpr std::uint64_t row = 2 * 1024, square = 2 * 1024 * 1024;
  std::string header = "{";
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint64_t begin = i * (row + square);
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
              R"(.bias":{"dtype":"BF16","shape":[1024],"data_offsets":[)" + std::to_string(begin) +
              "," + std::to_string(begin + row) + "]},\"" + std::to_string(i) +
              R"(.weight":{"dtype":"BF16","shape":[1024,1024],"data_offsets":[)" +
              std::to_string(begin + row) + "," + std::to_string(begin + row + square) + "]}";
  }
  header += "}";
  // The data are a hole, which takes no space.
  const auto path = folder.write("model.safetensors", length_of(header.size()) + header);
  std::filesystem::resize_file(path, 8 + header.size() + 200 * (row + square));
  const auto opened = Checkpoint::open(path);
  REQUIRE_OK(opened);
  REQUIRE(opened->tensors().size() == 400);
  for (std::uint64_t i = 0; i < 200; ++i) {
    CAPTURE(i);
    const auto bias = opened->get(std::to_string(i) + ".bias");
    const auto weight = opened->get(std::to_string(i) + ".weight");
    REQUIRE_OK(bias);
    REQUIRE_OK(weight);
    CHECK(bias->view.dtype() == DType::bfloat16);
    CHECK(list(bias->view.shape()) == std::vector<std::int64_t>{1024});
    CHECK(list(bias->view.strides()) == std::vector<std::int64_t>{1});
    CHECK(bias->file_offset == 8 + header.size() + i * (row + square));
    CHECK(weight->view.dtype() == DType::bfloat16);
    CHECK(list(weight->view.shape()) == std::vector<std::int64_t>{1024, 1024});
    CHECK(list(weight->view.strides()) == std::vector<std::int64_t>{1024, 1});
    CHECK(weight->file_offset == 8 + header.size() + i * (row + square) + row);
  }
}

TEST_CASE("a hundred thousand tensors of fifty shapes have the shape that each says") {
  constexpr std::size_t count = 100'000;
  // From 1 to 5 dimensions: the first tells the shape from the others of its rank.
  std::vector<std::vector<std::int64_t>> shapes;
  for (std::int64_t i = 0; i < 50; ++i) {
    std::vector<std::int64_t>& shape = shapes.emplace_back(1, 1 + i / 5);
    for (std::int64_t more = 0; more < i % 5; ++more) shape.push_back(1 + (i + more) % 2);
  }
  // In ever other orders.
  const auto shape_of = [&shapes](std::size_t i) -> const std::vector<std::int64_t>& {
    return shapes[(i + i / 50 * (i % 50)) % 50];
  };
  std::string header = "{";
  std::vector<std::size_t> begins;
  std::size_t end = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t bytes = 1;
    std::string text;
    for (const std::int64_t size : shape_of(i)) {
      text += (text.empty() ? "" : ",") + std::to_string(size);
      bytes *= static_cast<std::size_t>(size);
    }
    begins.push_back(end);
    end += bytes;
    header += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + R"(":{"dtype":"U8","shape":[)" +
              text + R"(],"data_offsets":[)" + std::to_string(begins.back()) + "," +
              std::to_string(end) + "]}";
  }
  header += "}";
  const File file(file_of(header, end));
  REQUIRE_MESSAGE(file.parsed.has_value(), file.error.message);
  const catalog::Catalog& catalog = file.parsed->catalog;
  REQUIRE(catalog.size() == count);
  std::size_t wrong = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const catalog::Entry& entry = catalog[i];
    const std::vector<std::int64_t>& shape = shape_of(i);
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t dim = shape.size() - 1; dim > 0; --dim)
      strides[dim - 1] = strides[dim] * shape[dim];
    const std::span<const std::int64_t> dims(catalog.dims(entry), 2 * std::size_t{entry.rank});
    const bool is_right =
        catalog.name(entry) == "t" + std::to_string(i) && entry.rank == shape.size() &&
        std::ranges::equal(dims.first(entry.rank), shape) &&
        std::ranges::equal(dims.last(entry.rank), strides) &&
        catalog.storages()[entry.storage].position == 8 + header.size() + begins[i];
    if (!is_right && ++wrong == 1) CHECK_MESSAGE(is_right, "tensor ", i);
  }
  CHECK(wrong == 0);
}

TEST_CASE("offsets of each number of digits are read alike for known and for other shapes") {
  // One tensor takes all up to the first offset, which therefore need not be data that exist.
  for (const std::uint64_t before : {0ull,
                                     1ull,
                                     2ull,
                                     92ull,
                                     99999ull,
                                     999991ull,
                                     999992ull,
                                     9999975ull,
                                     9999984ull,
                                     9999992ull,
                                     12345678ull,
                                     99999984ull,
                                     99999991ull,
                                     99999992ull,
                                     123456789ull,
                                     99999999999975ull,
                                     123456789012345ull,
                                     999999999999975ull,
                                     999999999999984ull,
                                     999999999999991ull,
                                     999999999999992ull,
                                     1234567890123456ull,
                                     9999999999999975ull,
                                     9999999999999984ull,
                                     12345678901234567ull,
                                     123456789012345678ull,
                                     1000000000000000000ull,
                                     2305843009213693951ull}) {
    CAPTURE(before);
    const auto offsets = [before](std::uint64_t from) {
      return std::to_string(before + from) + "," + std::to_string(before + from + 8);
    };
    std::string text = R"({"p":{"dtype":"U8","shape":[)" + std::to_string(before) +
                       R"(],"data_offsets":[0,)" + std::to_string(before) + "]}";
    for (const char* name : {"a", "b", "c"}) {
      const std::uint64_t from = 8 * static_cast<std::uint64_t>(*name - 'a');
      text +=
          ",\""s + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[)" + offsets(from) + "]}";
    }
    // Without and with text behind the last tensor.
    for (const char* behind : {"}", "}                "}) {
      const Header read(text + behind, before + 24);
      REQUIRE_OK(read.result);
      REQUIRE(read.header.tensors.size() == 4);
      for (std::size_t i = 0; i < 3; ++i) {
        const safetensors::HeaderTensor& tensor = read.header.tensors[i + 1];
        CHECK(tensor.begin == before + 8 * i);
        CHECK(tensor.end == before + 8 * i + 8);
        CHECK(tensor.rank == 1);
        CHECK(read.header.dims[tensor.first_dim] == 2);
      }
    }
  }
}

TEST_CASE("offsets of 20 digits are read alike for known and for other shapes") {
  std::string text = "{";
  for (std::uint64_t i = 0; i < 6; ++i)  // 2 * 10^18 bytes each
    text += "\"p" + std::to_string(i) + R"(":{"dtype":"U8","shape":[2000000000000000000],)" +
            R"("data_offsets":[)" + std::to_string(i * 2000000000000000000u) + "," +
            std::to_string((i + 1) * 2000000000000000000u) + "]},";
  text += R"("a":{"dtype":"U8","shape":[3],)"
          R"("data_offsets":[12000000000000000000,12000000000000000003]},)"
          R"("b":{"dtype":"U8","shape":[3],)"
          R"("data_offsets":[12000000000000000003,12000000000000000006]}})";
  const Header read(text, 12000000000000000006u);
  REQUIRE_OK(read.result);
  REQUIRE(read.header.tensors.size() == 8);
  CHECK(read.header.tensors[7].name == "b");
  CHECK(read.header.tensors[7].begin == 12000000000000000003u);
  CHECK(read.header.tensors[7].end == 12000000000000000006u);
}

TEST_CASE("blanks in unusual places change nothing behind a known shape") {
  for (const char* rest :
       {R"(,"data_offsets":[8,16]}})", R"(, "data_offsets": [8, 16]}})",
        R"(,  "data_offsets":[8,16]}})", R"( ,"data_offsets":[8,16]}})",
        R"(,"data_offsets" :[8,16]}})", R"(,"data_offsets":  [8,16]}})",
        R"(,"data_offsets":[ 8,16]}})", R"(,"data_offsets":[  8,16]}})",
        R"(,"data_offsets":[8 ,16]}})", R"(,"data_offsets":[8,  16]}})",
        R"(,"data_offsets":[8,16 ]}})", R"(,"data_offsets":[8,16] }})",
        R"(,"data_offsets":[8,16]  }})", R"(,"data_offsets":[8,16]} })",
        R"(,"data_offsets":[8,16]}  })", ",\"data_offsets\":\n[\t8\r\n,\t16\n]\n}\n}\n",
        "\t,\n\"data_offsets\"\r:\t[8,16]}}", R"(,"data_\u006fffsets":[8,16]}})"}) {
    CAPTURE(rest);
    const std::string header =
        R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2])"s +
        rest;
    CHECK(tensors_of(header, 16) == "a: float32 [2] at 0, 8 bytes; b: float32 [2] at 8, 8 bytes");
  }
}

TEST_CASE("spaced and compact text, with blanks before the shape or in it, give the same tensors") {
  for (const char* tensor :
       {R"({"dtype":"F32","shape":[1,2],"data_offsets":[~,^]})",
        R"({"dtype": "F32", "shape": [1, 2], "data_offsets": [~, ^]})",
        R"( { "dtype" : "F32" , "shape" : [ 1 , 2 ] , "data_offsets" : [ ~ , ^ ] } )",
        "\n{\n\t\"dtype\": \"F32\",\n\t\"shape\": [\n\t\t1,\n\t\t2\n\t],\n\t\"data_offsets\": "
        "[\n\t\t~,\n\t\t^\n\t]\n}\n"}) {
    std::string header = "{";
    for (const char* name : {"a", "b", "c"}) {
      std::string text = tensor;
      const int from = 8 * (*name - 'a');
      text.replace(text.find('^'), 1, std::to_string(from + 8));
      text.replace(text.find('~'), 1, std::to_string(from));
      header += (from == 0 ? "\"" : ",\"") + std::string(name) + "\":" + text;
    }
    header += "}";
    CAPTURE(header);
    CHECK(tensors_of(header, 24) ==
          "a: float32 [1, 2] at 0, 8 bytes; b: float32 [1, 2] at 8, 8 bytes; "
          "c: float32 [1, 2] at 16, 8 bytes");
  }
}

TEST_CASE("a known shape does not let pass what is wrong behind it") {
  const std::string start =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2])";
  const std::string of_offsets = "tensor \"b\": data_offsets: ";
  check_refused(start + R"(,"data_offsets":[0^8,16]}                    })", 16,
                of_offsets + "is not JSON");
  check_refused(start + R"(,"data_offsets":[8,0^16]}                    })", 16,
                of_offsets + "is not JSON");
  check_refused(start + R"(,"data_offsets":[8,0^0000000016]}                    })", 16,
                of_offsets + "is not JSON");
  check_refused(start + R"(,"data_offsets":[^-8,16]}                    })", 16,
                of_offsets + "expected a whole number, found a number");
  check_refused(start + R"(,"data_offsets":[8,^16.0]}                    })", 16,
                of_offsets + "expected a whole number, found a number");
  check_refused(start + R"(,"data_offsets":[8,^16e0]}                    })", 16,
                of_offsets + "expected a whole number, found a number");
  check_refused(start + R"(,"data_offsets":[8 ^16]}                    })", 16,
                of_offsets + "is not JSON");
  check_refused(start + R"(,"data_offsets":[^,16]}                    })", 16,
                of_offsets + "is not JSON");
  check_refused(start + R"(,"data_offsets":[8,16,^]}                    })", 16,
                of_offsets + "is not JSON");
  check_refused(start + R"(,^,"data_offsets":[8,16]}                    })", 16,
                "tensor \"b\": is not JSON");
  check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                R"(^"b":{"dtype":"F32","shape":[2],"data_offset":[8,16]}                    })",
                16, "tensor \"b\" has no data_offsets");
}

TEST_CASE("each change of a byte is taken or refused alike for known and for other shapes") {
  const std::string rest = R"(,"data_offsets":[8,16]},"c":{"dtype":"U8","shape":[0],)"
                           R"("data_offsets":[16,16]}}          )";
  REQUIRE(is_read_alike(rest, 16));
  for (std::size_t at = 0; at < rest.size(); ++at) {
    CAPTURE(at);
    std::string cut = rest;
    CHECK(is_read_alike(cut.erase(at, 1), 16));
    CHECK(is_read_alike(rest.substr(0, at), 16));
    for (const char byte : "019,:]}[{\" \n\\x.-e+/\x80\xff"s + '\0') {
      CAPTURE(byte);
      std::string changed = rest, longer = rest;
      changed[at] = byte;
      longer.insert(at, 1, byte);
      CHECK(is_read_alike(changed, 16));
      CHECK(is_read_alike(longer, 16));
    }
  }
}

TEST_CASE("each number is taken or refused alike for known and for other shapes") {
  const std::vector<std::string> numbers = {"0",
                                            "8",
                                            "16",
                                            "08",
                                            "00",
                                            "016",
                                            "0000008",
                                            "00000008",
                                            "000000008",
                                            "1234567",
                                            "12345678",
                                            "123456789",
                                            "12345678:",
                                            "1234567/",
                                            "123456789012345",
                                            "1234567890123456",
                                            "12345678901234567",
                                            "12345678901234567890",
                                            "18446744073709551615",
                                            "18446744073709551616",
                                            "99999999999999999999",
                                            "-8",
                                            "+8",
                                            "8.0",
                                            "8e0",
                                            "8E0",
                                            "8.",
                                            "\"8\"",
                                            "null",
                                            "[8]",
                                            "",
                                            " 8",
                                            "8 ",
                                            "  8  ",
                                            "0x8",
                                            "8_",
                                            "8\xc2\xb9"};
  for (const std::string& begin : numbers)
    for (const std::string& end : numbers) {
      CAPTURE(begin);
      CAPTURE(end);
      CHECK(is_read_alike(",\"data_offsets\":[" + begin + "," + end + "]}}", 16));
      CHECK(is_read_alike(",\"data_offsets\":[" + begin + "," + end + "]},                \"c\":1}",
                          16));
    }
}

// Damage.

TEST_CASE("a file that is cut at any length is refused") {
  const std::string whole = file_of(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
      16);
  REQUIRE(File(whole).parsed.has_value());
  const TemporaryFolder folder;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    const File file(whole.substr(0, length));
    REQUIRE_FALSE(file.parsed.has_value());
    CHECK(file.error.code == ErrorCode::corrupt);
    CHECK_FALSE(
        Checkpoint::open(folder.write("cut.safetensors", whole.substr(0, length))).has_value());
  }
}

TEST_CASE("a file with any bit changed is refused, or all its tensors lie within it") {
  const std::string whole = file_of(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]},)"
      R"("c":{"shape":[0],"dtype":"BF16","data_offsets":[16,16]}})",
      16);
  const TemporaryFolder folder;
  std::size_t accepted = 0;
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    CAPTURE(bit);
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    const File file(changed);
    const bool in_data = bit >= 8 * (whole.size() - 16);
    if (in_data) CHECK(file.parsed.has_value());
    if (bit < 64) CHECK_FALSE(file.parsed.has_value());
    const Result<Checkpoint> opened =
        Checkpoint::open(folder.write("flipped.safetensors", changed));
    CHECK(opened.has_value() == file.parsed.has_value());
    if (!file.parsed || !opened) continue;
    ++accepted;
    for (const catalog::StorageEntry& storage : file.parsed->catalog.storages()) {
      CHECK(storage.position >= 8);
      CHECK(storage.position <= whole.size());
      CHECK(storage.nbytes <= whole.size() - storage.position);
    }
    for (const NamedTensor tensor : opened->tensors()) {
      std::vector<std::byte> copy(tensor.view.nbytes());
      CHECK(tensor.view.gather(copy).has_value());
      CHECK(text_of(copy) == changed.substr(tensor.file_offset, copy.size()));
    }
  }
  CHECK(accepted > 128);  // those in the data, and some in names and metadata
}
