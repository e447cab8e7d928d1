// Files of the safetensors format, written out as bytes: what is read of them. What is refused is
// in tests/hostile/safetensors_cases.py, but for what takes limits of one's own or all bytes in
// turn.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/formats/safetensors/parse_safetensors.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/parsed_file.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/texts.hpp"
#include "weightmap/checkpoint.hpp"

using namespace weightmap;
using namespace std::string_literals;
using namespace weightmap::test;
using File = test::ParsedFile<safetensors::parse>;

namespace {

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return framed(header, data_of(data_bytes));
}

// A tensor as a header describes it.
struct Described {
  std::string name;
  std::string dtype;
  std::string shape;
  std::size_t begin;
  std::size_t end;
};

std::string header_of(const std::vector<Described>& tensors) {
  std::string text = "{";
  for (const Described& tensor : tensors)
    text += (text.size() == 1 ? "\"" : ",\"") + tensor.name + R"(":{"dtype":")" + tensor.dtype +
            R"(","shape":[)" + tensor.shape + R"(],"data_offsets":[)" +
            std::to_string(tensor.begin) + "," + std::to_string(tensor.end) + "]}";
  return text + "}";
}

// "name: float32 [2, 3] at 0, 24 bytes; ..." with offsets behind the header.
std::string tensors_of(const std::string& header, std::size_t data_bytes) {
  return File(file_of(header, data_bytes)).tensors(8 + header.size());
}
std::string tensors_of(const std::vector<Described>& tensors) {
  return tensors_of(header_of(tensors), tensors.back().end);
}

// All that is to be known of a file: its tensors, or what is wrong with it and where.
std::string outcome(const std::string& header, std::size_t data_bytes) {
  const File file(file_of(header, data_bytes));
  if (file.parsed) return file.tensors(8 + header.size());
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
  NamedTensor tensor(std::string_view name) const { return checkpoint().get(name).value(); }
  TemporaryFolder folder;
  std::filesystem::path path;
  Result<Checkpoint> result;
};

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

TEST_CASE("metadata keep the order of the file") {
  const File file(file_of(R"({"__metadata__":{"z":"1","a":"2","m":"3","":""}})", 0));
  REQUIRE(file.parsed.has_value());
  std::string keys;
  for (const auto& [key, value] : file.root().items())
    keys += std::string(*key.string()) + "=" + std::string(*value.string()) + ",";
  CHECK(keys == "z=1,a=2,m=3,=,");
}

TEST_CASE("metadata that are null are none, and metadata may stand behind the tensors") {
  const File file(file_of(R"({"__metadata__":null,"a":{"dtype":"U8","shape":[1],)"
                          R"("data_offsets":[0,1]}})",
                          1));
  CHECK(file.root().kind() == Value::Kind::dict);
  CHECK(file.root().item_count() == 0);
  CHECK(file.parsed->catalog.size() == 1);
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
  const auto elements = tensor.as<std::int32_t>().value();
  CHECK(std::vector<std::int32_t>(elements.begin(), elements.end()) ==
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

TEST_CASE("tensors of a header, as they are listed") {
  struct Row {
    const char* name;
    std::vector<Described> tensors;  // the last of which ends last
    const char* listed;
  };
  for (const Row& row : std::vector<Row>{
           {"an empty one", {{"a", "I32", "2,0", 0, 0}}, "a: int32 [2, 0] at 0, 0 bytes"},
           {"empty ones lie where the ones before them end",
            {{"a", "U8", "2", 0, 2},
             {"b", "F64", "0", 2, 2},
             {"c", "U8", "0", 2, 2},
             {"d", "U8", "1", 2, 3},
             {"e", "U8", "0", 3, 3}},
            "a: uint8 [2] at 0, 2 bytes; b: float64 [0] at 2, 0 bytes; c: uint8 [0] at 2, 0 bytes; "
            "d: uint8 [1] at 2, 1 bytes; e: uint8 [0] at 3, 0 bytes"},
           {"an empty one with a size as large as a size can be",
            {{"a", "F32", "0,9223372036854775807", 0, 0}},
            "a: float32 [0, 9223372036854775807] at 0, 0 bytes"},
           {"pairs of four-bit floats have half the last dimension",
            {{"a", "F4", "2,4", 0, 4},
             {"b", "F4", "1,2", 4, 5},
             {"c", "F4", "3,2", 5, 8},
             {"d", "F4", "3,0", 8, 8}},
            "a: float4_e2m1fn_x2 [2, 2] at 0, 4 bytes; b: float4_e2m1fn_x2 [1, 1] at 4, 1 bytes; "
            "c: float4_e2m1fn_x2 [3, 1] at 5, 3 bytes; d: float4_e2m1fn_x2 [3, 0] at 8, 0 bytes"},
           {"six-bit types have four elements in three bytes",
            {{"a", "F6_E2M3", "2,8", 0, 12}, {"b", "F6_E3M2", "3,0", 12, 12}},
            "a: float6_e2m3 [2, 8] at 0, 12 bytes; b: float6_e3m2 [3, 0] at 12, 0 bytes"},
           {"a type with escapes",
            {{"a", R"(\u0046\u00332)", "1", 0, 4}},
            "a: float32 [1] at 0, 4 bytes"},
           {"in the order of the file, whatever that of the header",
            {{"b", "U8", "2", 0, 2}, {"a", "U8", "3", 2, 5}, {"z", "U8", "1", 5, 6}},
            "b: uint8 [2] at 0, 2 bytes; a: uint8 [3] at 2, 3 bytes; z: uint8 [1] at 5, 1 bytes"},
           {"names that look like the metadata",
            {{"__metadata", "U8", "1", 0, 1}, {"__METADATA__", "U8", "1", 1, 2}},
            "__metadata: uint8 [1] at 0, 1 bytes; __METADATA__: uint8 [1] at 1, 1 bytes"},
           {"a known shape of one type says nothing of another type or another shape",
            {{"a", "F32", "2", 0, 8},
             {"b", "I32", "2", 8, 16},
             {"c", "F32", "2,1", 16, 24},
             {"d", "U32", "2", 24, 32},
             {"e", "F32", "1,2", 32, 40},
             {"f", "I32", "2", 40, 48}},
            "a: float32 [2] at 0, 8 bytes; b: int32 [2] at 8, 8 bytes; "
            "c: float32 [2, 1] at 16, 8 bytes; d: uint32 [2] at 24, 8 bytes; "
            "e: float32 [1, 2] at 32, 8 bytes; f: int32 [2] at 40, 8 bytes"},
       }) {
    CAPTURE(row.name);
    const std::size_t end = row.tensors.back().end;
    CHECK(tensors_of(row.tensors) == row.listed);
    std::vector<Described> turned(row.tensors.rbegin(), row.tensors.rend());
    if (turned.size() == 3) CHECK(tensors_of(header_of(turned), end) == row.listed);
  }
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
  std::vector<Described> tensors;
  std::size_t end = 0;
  for (const auto& [name, bits, dtype] : types) {
    const std::size_t begin = end;
    end += static_cast<std::size_t>(3 * bits / 8);
    tensors.push_back({"of "s + name, name, "3", begin, end});
  }
  const std::string header = header_of(tensors);
  const std::string content = file_of(header, end);
  const Opened opened(content);
  REQUIRE(opened.checkpoint().tensors().size() == types.size());
  std::size_t offset = 8 + header.size();
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

TEST_CASE("views have the strides of halved dimensions, and bytes of six-bit types") {
  const Opened four(file_of(header_of({{"a", "F4", "2,6", 0, 6}}), 6));
  const auto a = four.tensor("a");
  CHECK(list(a.view.shape()) == std::vector<std::int64_t>{2, 3});
  CHECK(list(a.view.strides()) == std::vector<std::int64_t>{3, 1});
  const Opened six(file_of(header_of({{"a", "F6_E3M2", "2,4", 0, 6}}), 6));
  const TensorSlice bytes = six.tensor("a").view.bits().value();
  CHECK(list(bytes.shape()) == std::vector<std::int64_t>{2, 3});
  CHECK(text_of(bytes.bytes()) == "\0\1\2\3\4\5"s);
}

TEST_CASE("types whose rows are not whole bytes are named as unsupported and not listed") {
  const Opened opened(file_of(header_of({{"a", "F6_E2M3", "2,2", 0, 3},
                                         {"b", "F4", "2,3", 3, 6},
                                         {"c", "U8", "2", 6, 8},
                                         {"d", "F6_E3M2", "2,2", 8, 11}}),
                              11));
  CHECK(opened.checkpoint().info().unsupported == std::vector<std::string>{"a", "b", "d"});
  CHECK(opened.checkpoint().info().tensors == 1);
  CHECK_FALSE(opened.checkpoint().contains("a"));
  CHECK(opened.checkpoint().tensors()[0].name == "c");
  CHECK(text_of(opened.tensor("c").view.bytes()) == "\6\7");
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
  CHECK(outcome(alone(R"({"dtype":"U8","x":{"y":1,"y":2},"shape":[1],"data_offsets":[0,1]})"), 1) ==
        "corrupt: tensor \"a\": \"x\": an object has the key \"y\" twice (at byte 38)");
}

TEST_CASE("names may be any text") {
  const Opened opened(file_of(header_of({{"", "U8", "1", 0, 1},
                                         {R"(a\u0000b)", "U8", "1", 1, 2},
                                         {R"(\ud83d\ude00)", "U8", "1", 2, 3},
                                         {R"(a.\"b\/)", "U8", "1", 3, 4}}),
                              4));
  CHECK(opened.tensor("").index == 0);
  CHECK(opened.tensor("a\0b"s).index == 1);
  CHECK(opened.tensor("\xf0\x9f\x98\x80").index == 2);
  CHECK(opened.tensor("a.\"b/").index == 3);
  CHECK(opened.checkpoint().get_path({"a.\"b/"}).has_value());
  CHECK_FALSE(opened.checkpoint().get_path({"a", "\"b/"}).has_value());
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

TEST_CASE("numbers from 0 to 7 dimensions are kept as they are") {
  std::vector<Described> tensors;
  std::string shape;
  std::size_t end = 0, bytes = 2;
  for (std::size_t rank = 0; rank <= 7; ++rank) {
    tensors.push_back({"r" + std::to_string(rank), "BF16", shape, end, end + bytes});
    end += bytes;
    shape += (rank == 0 ? "" : ",") + std::to_string(rank % 3 + 1);
    bytes *= rank % 3 + 1;
  }
  CHECK(tensors_of(tensors) ==
        "r0: bfloat16 [] at 0, 2 bytes; r1: bfloat16 [1] at 2, 2 bytes; "
        "r2: bfloat16 [1, 2] at 4, 4 bytes; r3: bfloat16 [1, 2, 3] at 8, 12 bytes; "
        "r4: bfloat16 [1, 2, 3, 1] at 20, 12 bytes; r5: bfloat16 [1, 2, 3, 1, 2] at 32, 24 bytes; "
        "r6: bfloat16 [1, 2, 3, 1, 2, 3] at 56, 72 bytes; "
        "r7: bfloat16 [1, 2, 3, 1, 2, 3, 1] at 128, 72 bytes");
}

TEST_CASE("tensors may begin at any byte: there are views, which give no unaligned elements") {
  const Opened opened(file_of(header_of({{"a", "U8", "1", 0, 1}, {"b", "F32", "2", 1, 9}}), 9));
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

TEST_CASE("a torch archive as the last tensor does not make an archive of the file") {
  const std::string archive = test::torch_zip({{"inner", "bytes"}});
  const TemporaryFolder folder;
  REQUIRE_OK(Checkpoint::open(folder.write("alone.pt", archive)));
  const std::size_t size = archive.size();
  const std::string header =
      header_of({{"first", "F32", "1", 0, 4}, {"last", "U8", std::to_string(size), 4, size + 4}});
  for (const char* padding : {"", "       "}) {
    const std::string content = framed(header + padding, "four" + archive);
    for (const char* name : {"model.safetensors", "model.pt", "model.json", "model.zip", "model"}) {
      CAPTURE(name);
      const auto opened = Checkpoint::open(folder.write(name, content)).value();
      CHECK(opened.info().format == Format::safetensors);
      REQUIRE(opened.tensors().size() == 2);
      CHECK(opened.tensors()[0].name == "first");
      CHECK(opened.tensors()[1].name == "last");
      CHECK(text_of(opened.find("last")->bytes()) == archive);
      CHECK_FALSE(opened.contains("inner"));
    }
  }
}

TEST_CASE("a header of more than the first read is read whole") {
  std::vector<Described> tensors;
  for (std::size_t i = 0; i < 3000; ++i)
    tensors.push_back({"t" + std::to_string(i), "U8", "1", i, i + 1});
  const std::string header = header_of(tensors);
  const Opened opened(file_of(header, 3000));
  REQUIRE(header.size() > 100000);
  REQUIRE(opened.checkpoint().tensors().size() == 3000);
  const NamedTensor last = opened.tensor("t2999");
  CHECK(last.file_offset == 8 + header.size() + 2999);
  CHECK(last.as<std::uint8_t>().value()[0] == 2999 % 251);
}

// What is refused.

TEST_CASE("refuses tensors of one name of which one or both have a type that is not listed") {
  const auto six = [](const char* offsets) {
    return R"("a":{"dtype":"F6_E2M3","shape":[2,2],"data_offsets":)"s + offsets + "}";
  };
  const auto bytes = [](const char* offsets) {
    return R"("a":{"dtype":"U8","shape":[3],"data_offsets":)"s + offsets + "}";
  };
  const std::string twice = "the file has tensor \"a\" twice";
  check_refused("{" + six("[0,3]") + ",^" + six("[3,6]") + "}", 6, twice);
  check_refused("{" + bytes("[0,3]") + ",^" + six("[3,6]") + "}", 6, twice);
  check_refused("{" + bytes("[3,6]") + ",^" + six("[0,3]") + "}", 6, twice);
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
  const Limits limits{.tensors = 2};
  CHECK(File(file_of(two + R"(,"__metadata__":{}})", 2), limits).parsed.has_value());
  check_refused(two + R"(,^"c":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", 3,
                "the file has more than 2 tensors, which is the limit", ErrorCode::limit_exceeded,
                limits);
}

TEST_CASE("takes as many dimensions as the limit and not one more") {
  Limits limits{.rank = 3};
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
  const Limits limits{.pickle_bytes = 60};
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

TEST_CASE("known shapes keep the types that have no elements, and halved dimensions") {
  const std::string header = header_of({{"a", "F4", "2,4", 0, 4},
                                        {"b", "F4", "2,4", 4, 8},
                                        {"c", "F4", "2,3", 8, 11},
                                        {"d", "F4", "2,3", 11, 14},
                                        {"e", "F6_E2M3", "2,2", 14, 17},
                                        {"f", "F6_E2M3", "2,2", 17, 20},
                                        {"g", "F4", "2,4", 20, 24}});
  const File file(file_of(header, 24));
  CHECK(file.tensors(8 + header.size()) ==
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

TEST_CASE("more shapes than are kept in mind give the tensors that they say") {
  std::vector<Described> tensors;
  std::size_t end = 0;
  for (int round = 0; round < 3; ++round)
    for (std::size_t size = 0; size < 300; end += size, ++size)
      tensors.push_back({std::to_string(round) + "." + std::to_string(size), "U8",
                         std::to_string(size), end, end + size});
  const File file(file_of(header_of(tensors), end));
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
