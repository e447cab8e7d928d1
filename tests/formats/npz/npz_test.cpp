// Archives of numpy: those that it wrote (tests/data/make_npz_fixtures.py), and each kind of those
// that nothing should write.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/zip/crc32.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/convert.hpp"

using namespace weightmap;
using namespace std::string_literals;
using test::opened;
using test::TemporaryFolder;

namespace {

const std::filesystem::path files = test::data / "npz";

// The text of a usual header.
std::string text_of(const std::string& descr, const std::string& shape,
                    const std::string& order = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

std::string array_of(const std::string& text, const std::string& elements = "") {
  const std::string length{static_cast<char>(text.size() & 0xff),
                           static_cast<char>(text.size() >> 8)};
  return "\x93NUMPY\1\0"s + length + text + elements;
}

// Two floats.
const std::string good = array_of(text_of("'<f4'", "(2,)"), "\0\0\x80\x3f\0\0\0\x40"s);

Result<Checkpoint> open_with(const std::vector<std::pair<std::string, std::string>>& records,
                             const OpenOptions& options = {}) {
  test::ArchiveBuilder builder;
  for (const auto& [name, content] : records) builder.add_plain(name, content);
  const TemporaryFolder folder;
  return Checkpoint::open(folder.write("a.npz", std::span<const std::byte>(builder.finish())),
                          options);
}

Result<Checkpoint> open_array(const std::string& array) { return open_with({{"w.npy", array}}); }
Result<Checkpoint> open_text(const std::string& text, const std::string& elements = "") {
  return open_array(array_of(text, elements));
}

// Where the array begins in the file of open_array(): behind 30 bytes and the name.
constexpr std::uint64_t array_begin = 35;

// What follows is one statement about the one array of an archive.
void check_refused(const Result<Checkpoint>& refused, ErrorCode code, const std::string& words,
                   std::uint64_t offset) {
  CHECK_FAILS(refused, code, "record \"w.npy\": " + words);
  CHECK(refused.error().file_offset == offset);
  CHECK(refused.error().file.ends_with("/a.npz"));
}

std::string descriptions(const Checkpoint& checkpoint) {
  std::string text;
  for (const NamedTensor tensor : checkpoint.tensors()) {
    text += std::string(tensor.name) + " " + std::string(to_string(tensor.view.dtype()));
    for (std::size_t i = 0; i < tensor.view.rank(); ++i)
      text += " " + std::to_string(tensor.view.shape()[i]) + "/" +
              std::to_string(tensor.view.strides()[i]);
    text += "\n";
  }
  return text;
}

template <class T>
std::vector<T> values(const Checkpoint& checkpoint, std::string_view name) {
  const auto view = checkpoint.find(name).value();
  std::vector<T> read(static_cast<std::size_t>(view.numel()));
  REQUIRE_OK(checkpoint.gather(view, std::as_writable_bytes(std::span(read))));
  return read;
}

void check_content(const Checkpoint& checkpoint) {
  CHECK(descriptions(checkpoint) ==
        "layer/weight float32 3/4 4/1\n"
        "transposed int16 2/1 3/2\n"
        "mask bool 3/1\n"
        "half float16 2/1\n"
        "complex complex64 1/1\n"
        "scalar int64\n"
        "empty float64 0/5 5/1\n");
  CHECK(values<float>(checkpoint, "layer/weight") ==
        std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(values<std::int16_t>(checkpoint, "transposed") ==
        std::vector<std::int16_t>{0, 1, 2, 3, 4, 5});
  CHECK(values<std::uint8_t>(checkpoint, "mask") == std::vector<std::uint8_t>{1, 0, 1});
  CHECK(values<std::uint16_t>(checkpoint, "half") == std::vector<std::uint16_t>{0x3e00, 0xc000});
  CHECK(values<std::int64_t>(checkpoint, "scalar") == std::vector<std::int64_t>{7});
  CHECK(checkpoint.root().size() == 0);
}

}  // namespace

TEST_CASE("arrays that numpy stored are mapped where they lie") {
  const Checkpoint checkpoint = opened(files / "stored.npz");
  check_content(checkpoint);
  CHECK(checkpoint.info().format == Format::npz);
  CHECK(checkpoint.info().byteorder == "little");
  CHECK(checkpoint.info().pickle_bytes == 7 * 128);
  CHECK(checkpoint.source_count() == 1);
  CHECK(checkpoint.stats().storages_copied == 0);
  // A name of 16 bytes, a local header of 30 and a field of 20: the header of the array is 128.
  const auto weight = checkpoint.get("layer/weight").value();
  CHECK(weight.file_offset == 30 + 16 + 20 + 128);
  CHECK(weight.view.data() == checkpoint.mapping().data() + weight.file_offset);
  CHECK(checkpoint.info().storage_alignment == 1);
}

TEST_CASE("arrays that numpy compressed are inflated") {
  const Checkpoint checkpoint = opened(files / "deflated.npz");
  check_content(checkpoint);
  CHECK(checkpoint.stats().storages_copied == 7);
  CHECK(checkpoint.source_count() == 2);
  const OpenOptions options{.zero_copy_only = true};
  CHECK_FAILS(Checkpoint::open(files / "deflated.npz", options), ErrorCode::unsupported,
              "record \"layer/weight.npy\"");
}

TEST_CASE("all three versions of the header are read") {
  const Checkpoint checkpoint = opened(files / "versions.npz");
  for (const std::uint32_t major : {1u, 2u, 3u})
    CHECK(values<std::uint32_t>(checkpoint, "v" + std::to_string(major)) ==
          std::vector<std::uint32_t>{major});
}

TEST_CASE("checksums are those of the elements alone") {
  for (const char* name : {"stored.npz", "deflated.npz", "versions.npz"}) {
    const Checkpoint checkpoint = opened(files / name);
    const CrcReport report = verify_crc(checkpoint);
    CHECK(report.faults.empty());
    CHECK(report.storages_checked + report.storages_without_crc ==
          Backing(checkpoint).storage_count());
    CHECK(report.storages_without_crc <= 1);  // of no elements
    REQUIRE_OK(verify_headers(checkpoint));
  }
  std::string damaged = test::read_file(files / "stored.npz");
  damaged[194 + 47] ^= 1;  // the last byte of "layer/weight"
  const TemporaryFolder folder;
  const CrcReport report = verify_crc(opened(folder.write("a.npz", damaged)));
  REQUIRE(report.faults.size() == 1);
  CHECK(report.faults[0].message.find("layer/weight") != std::string::npos);
}

TEST_CASE("the checksum of the rest of something") {
  const auto whole = test::to_bytes("the front and the rest");
  const auto parts = std::span(whole);
  for (std::size_t i = 0; i <= whole.size(); ++i)
    CHECK(zip::crc32_behind(zip::crc32(parts.first(i)), zip::crc32(whole), whole.size() - i) ==
          zip::crc32(parts.subspan(i)));
}

TEST_CASE("an archive that was rewritten since the open has other headers") {
  const TemporaryFolder folder;
  std::string content = test::read_file(files / "stored.npz");
  const Checkpoint checkpoint = opened(folder.write("a.npz", content));
  for (std::size_t at = 0; (at = content.find("mask", at)) != std::string::npos;)
    content.replace(at, 4, "task");
  folder.write("a.npz", content);
  CHECK_FAILS(verify_headers(checkpoint), ErrorCode::corrupt,
              "its arrays are others than when the file was opened");
}

TEST_CASE("a header may have its fields in any order, other quotes and no comma at its end") {
  const auto read =
      open_text(R"({"shape":(1L,) , 'fortran_order':True,"descr":"|i1"})", "\5").value();
  CHECK(values<std::int8_t>(read, "w") == std::vector<std::int8_t>{5});
}

TEST_CASE("an array without dimensions has one element") {
  const auto read = open_text(text_of("'<u2'", "()"), "\1\2").value();
  CHECK(values<std::uint16_t>(read, "w") == std::vector<std::uint16_t>{0x0201});
}

TEST_CASE("a header longer than what one read gets") {
  const auto read =
      open_text(text_of("'<f4'", "(2,)") + std::string(5000, ' '), std::string(8, '\0')).value();
  CHECK(read.get("w")->file_offset % 4 == (array_begin + 10 + 58 + 5000) % 4);
}

TEST_CASE("an archive of torch with an array in it is one of torch") {
  CHECK_FAILS(open_with({{"data.pkl", "no pickle"}, {"w.npy", good}}), ErrorCode::corrupt, "");
}

TEST_CASE("an archive without arrays is none of numpy") {
  CHECK_FAILS(open_with({{"w.txt", good}}), ErrorCode::not_a_checkpoint,
              "is a zip archive without the record data.pkl");
}

namespace {

// What is said of "other", of this text and these elements, beside an array of numbers.
std::string beside_good(const std::string& text, const std::string& elements = "12345678") {
  const Checkpoint made =
      open_with({{"w.npy", good}, {"other.npy", array_of(text, elements)}, {"v.npy", good}})
          .value();
  CHECK(values<float>(made, "w") == std::vector<float>{1, 2});
  CHECK(values<float>(made, "v") == std::vector<float>{1, 2});
  REQUIRE_OK(verify_headers(made));
  std::string said = descriptions(made);
  for (const std::string& name : made.info().unsupported) said += "not listed: " + name + "\n";
  return said;
}

const std::string both = "w float32 2/1\nv float32 2/1\n";

}  // namespace

TEST_CASE("arrays that no tensor is are left out by name and type, beside others that are read") {
  CHECK(beside_good(text_of("'>f4'", "(2,)")) == both + "not listed: other (>f4)\n");
  CHECK(beside_good(text_of("'>V2'", "(2,)")) == both + "not listed: other (>V2)\n");
  CHECK(beside_good(text_of("'|O'", "()"), "any length") == both + "not listed: other (|O)\n");
  CHECK(beside_good(text_of("'<U2'", "(1,)")) == both + "not listed: other (<U2)\n");
  CHECK(beside_good(text_of("'|S8'", "(1,)")) == both + "not listed: other (|S8)\n");
  CHECK(beside_good(text_of("'<M8[s]'", "(1,)")) == both + "not listed: other (<M8[s])\n");
  CHECK(beside_good(text_of("'<f16'", "(1,)")) == both + "not listed: other (<f16)\n");
  CHECK(beside_good(text_of("'|V3'", "(1,)")) == both + "not listed: other (|V3)\n");
  CHECK(beside_good(text_of("[('a', '<f4'), ('b', [('c', '|u1', (2, 3))])]", "(1,)")) ==
        both + "not listed: other ([('a', '<f4'), ('b', [('c', '|u1', (2, 3))])])\n");
}

TEST_CASE("an archive of other arrays alone has no tensors") {
  for (const char* name : {"big_endian.npz", "objects.npz", "text.npz", "structure.npz"}) {
    const Checkpoint checkpoint = opened(files / name);
    CHECK(checkpoint.info().tensors == 0);
    CHECK(checkpoint.info().unsupported.size() == 1);
  }
}

TEST_CASE("refuses a structure that does not end, or whose brackets do not match") {
  check_refused(open_text("{'descr': [('a', '<f4')"), ErrorCode::corrupt,
                "field \"descr\" has the end of the header where the end of a structure", 68);
  check_refused(open_text("{'descr': [('a', '<f4'])"), ErrorCode::corrupt,
                "field \"descr\" has \"]\" where \")\" was expected", 67);
}

TEST_CASE("elements whose type numpy forgot are opaque, until they are told") {
  for (const char* descr : {"'<V2'", "'|V2'"})
    CHECK(beside_good(text_of(descr, "(2,)"), "\x80\x3f\0\x40"s) ==
          "w float32 2/1\nother opaque[2] 2/1\nv float32 2/1\n");
  CHECK(beside_good(text_of("'|V1'", "(2,)"), "ab") ==
        "w float32 2/1\nother opaque[1] 2/1\nv float32 2/1\n");
}

namespace {

Result<Checkpoint> open_told(const std::string& descr, const std::string& name, DType dtype) {
  OpenOptions options;
  options.dtypes[name] = dtype;
  return open_with({{"w.npy", array_of(text_of(descr, "(2,)"), "\x80\x3f\0\x40"s)}}, options);
}

}  // namespace

TEST_CASE("the option dtypes tells what opaque elements are, and is refused for all else") {
  CHECK(descriptions(open_told("'<V2'", "w", DType::bfloat16).value()) == "w bfloat16 2/1\n");
  constexpr ErrorCode code = ErrorCode::invalid_argument;
  CHECK_FAILS(open_told("'<V2'", "w", DType::float32), code,
              "array \"w\" has elements of type opaque[2], which are no float32");
  CHECK_FAILS(open_told("'<V2'", "w", DType::q4_0), code, "are no q4_0");
  CHECK_FAILS(open_told("'<i2'", "w", DType::bfloat16), code,
              "the option dtypes names \"w\", which is int16");
  CHECK_FAILS(open_told("'<V2'", "other", DType::bfloat16), code,
              "the option dtypes names \"other\", which is not listed");
}

TEST_CASE("a single array is one tensor, mapped where it lies") {
  const TemporaryFolder folder;
  const std::string array = array_of(text_of("'<f4'", "(2,)"), "\0\0\x80\x3f\0\0\0\x40"s);
  for (const char* name : {"a.npy", "a", "a.pt"}) {
    const Checkpoint checkpoint = opened(folder.write(name, array));
    CHECK(descriptions(checkpoint) == "arr_0 float32 2/1\n");
    CHECK(values<float>(checkpoint, "arr_0") == std::vector<float>{1, 2});
    CHECK(checkpoint.info().format == Format::npy);
    CHECK(checkpoint.info().unread_bytes == 0);
    CHECK(checkpoint.find("arr_0")->data() ==
          checkpoint.mapping().data() + checkpoint.mapping().size() - 8);
  }
  const Checkpoint two = opened(folder.write("two.npy", array + array));
  CHECK(two.info().unread_bytes == array.size());
}

TEST_CASE("refuses a single array that was cut anywhere") {
  const TemporaryFolder folder;
  for (std::size_t size = 1; size < good.size(); ++size)
    CHECK_FALSE(Checkpoint::open(folder.write("a.npy", good.substr(0, size))).has_value());
  CHECK_FAILS(Checkpoint::open(folder.write("a.npy", good.substr(0, good.size() - 1))),
              ErrorCode::corrupt,
              "is truncated: the field \"shape\" says 8 bytes behind the header, the file has 7");
}

TEST_CASE("refuses a single array that no tensor is") {
  const TemporaryFolder folder;
  CHECK_FAILS(
      Checkpoint::open(folder.write("a.npy", array_of(text_of("'|O'", "()"), "x"))),
      ErrorCode::unsupported,
      "the field \"descr\" is \"|O\": Python objects, which are pickled; if you trust them, "
      "load them with numpy.load(allow_pickle=True), and save the arrays among them with");
}

TEST_CASE("a record that is not named as an array is named, and the others are listed") {
  const auto read =
      open_with({{"readme", "text"}, {"v.npy", good}, {"d/", ""}, {"w.npy", good}}).value();
  CHECK(descriptions(read) == "v float32 2/1\nw float32 2/1\n");
  CHECK(values<float>(read, "w") == std::vector<float>{1, 2});
  CHECK(read.info().unsupported == std::vector<std::string>{"readme (no .npy array)"});
  REQUIRE_OK(verify_headers(read));
}

TEST_CASE("refuses an array that nothing should write") {
  using enum ErrorCode;
  const struct {
    const char* what;
    std::string array;
    ErrorCode code;
    const char* words;
    std::uint64_t at;
  } refusals[] = {
      {"a dtype without a byte order", array_of(text_of("'f4'", "(1,)"), "1234"), corrupt,
       "field \"descr\" is \"f4\", which does not begin with a byte order", array_begin + 20},
      {"a dtype of the machine's byte order, whichever that is",
       array_of(text_of("'=f4'", "(1,)"), "1234"), corrupt,
       "field \"descr\" is \"=f4\", which does not say its byte order", array_begin + 20},
      {"a dtype of several bytes that has no byte order",
       array_of(text_of("'|f4'", "(1,)"), "1234"), corrupt,
       "field \"descr\" is \"|f4\", which does not say its byte order", array_begin + 20},
      {"an array that does not begin as one", "\x93NUMPX\1\0"s + std::string(70, ' '), corrupt,
       "does not begin as a .npy array", array_begin},
      {"version 4.0", good.substr(0, 6) + "\4\0"s + good.substr(8), unsupported,
       "has version 4.0 of the .npy format", array_begin + 6},
      {"version 1.1", good.substr(0, 6) + "\1\1"s + good.substr(8), unsupported,
       "has version 1.1 of the .npy format", array_begin + 6},
      {"an array that ends within its header", good.substr(0, 11), corrupt,
       "ends within its header, after 11 bytes", array_begin},
      {"a header 256 bytes longer", good.substr(0, 9) + "\1" + good.substr(10), corrupt,
       "has a header of 324 bytes and only 76", array_begin},
      {"a header a byte longer than the array", good.substr(0, 8) + "\x43\0"s + good.substr(10),
       corrupt, "has a header of 77 bytes and only 76 bytes in all", array_begin},
      {"a header longer than numbers need", "\x93NUMPY\2\0\0\0\1\0"s + std::string(70000, ' '),
       limit_exceeded, "has a header of 65536 bytes, the limit is 65535", array_begin + 8},
      {"a header that is no dict", array_of("('descr', '<f4')\n"), corrupt,
       "has \"(\" where \"{\" was expected", array_begin + 10},
      {"a header whose dict does not end", array_of("{'descr': '<f4'\n"), corrupt,
       "has the end of the header where \"}\" was expected", array_begin + 26},
      {"a header with more behind its dict", array_of(text_of("'<f4'", "(2,)") + "+ 1"), corrupt,
       "has more behind its dict", array_begin + 10 + 58},
      {"a header without one of the fields", array_of("{'descr': '<f4', 'fortran_order': False}\n"),
       corrupt, "has no field \"shape\" in its header", array_begin + 10},
      {"a field that comes twice",
       array_of("{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': ()}"), corrupt,
       "has the field \"descr\" twice", array_begin + 27},
      {"a field that no header has", array_of("{'descr': '<f4', 'order': False, 'shape': ()}"),
       corrupt, "has the field \"order\", which no .npy header has", array_begin + 27},
      {"a key that is no string", array_of("{1: 2}"), corrupt,
       "has \"1\" where a string was expected", array_begin + 11},
      {"a string that does not end", array_of("{'descr': '<f4"), corrupt,
       "field \"descr\" has a string that does not end", array_begin + 21},
      {"a string with an escape", array_of("{'de\\x73cr': '<f4'}"), corrupt,
       "has a string that does not end, or one with an escape", array_begin + 12},
      {"an order that is neither True nor False", array_of(text_of("'<f4'", "(2,)", "0")), corrupt,
       "field \"fortran_order\" has \"0\" where True or False was expected", array_begin + 44},
      {"a shape that is a number", array_of(text_of("'<f4'", "2")), corrupt,
       "field \"shape\" has \"2\" where \"(\" was expected", array_begin + 60},
      {"a shape that is a number in parentheses", array_of(text_of("'<f4'", "(2)")), corrupt,
       "field \"shape\" has \")\" where \",\" was expected", array_begin + 62},
      {"a negative size", array_of(text_of("'<f4'", "(-2,)")), corrupt,
       "field \"shape\" has \"-\" where a size was expected", array_begin + 61},
      {"a size with a zero in front", array_of(text_of("'<f4'", "(02,)")), corrupt,
       "field \"shape\" has \",\" where a size was expected", array_begin + 63},
      {"sizes without a comma between them", array_of(text_of("'<f4'", "(2, 3 4)")), corrupt,
       "field \"shape\" has \"4\" where \",\" or \")\" was expected", array_begin + 66},
      {"a size that does not fit 63 bits", array_of(text_of("'<f4'", "(9223372036854775808,)")),
       corrupt, "field \"shape\" has a size that does not fit 63 bits", array_begin + 61},
      {"an empty shape whose strides do not fit",
       array_of(text_of("'<f4'", "(0, 4294967296, 4294967296)")), corrupt,
       "field \"shape\" has sizes whose product does not fit 64 bits", 0},
      {"a shape whose product does not fit", array_of(text_of("'<f4'", "(4294967296, 4294967296)")),
       corrupt, "field \"shape\" has sizes whose product does not fit 64 bits", 0},
      {"a shape whose bytes do not fit", array_of(text_of("'<f8'", "(2305843009213693952, 4)")),
       corrupt, "field \"shape\" has sizes whose product does not fit 64 bits", 0},
      {"fewer bytes than the shape says", array_of(text_of("'<f4'", "(2,)"), "1234567"), corrupt,
       "has 7 bytes behind its header, the field \"shape\" says 8", 0},
      {"more bytes than the shape says", array_of(text_of("'<f4'", "(2,)"), "123456789"), corrupt,
       "has 9 bytes behind its header, the field \"shape\" says 8", 0},
  };
  for (const auto& refusal : refusals) {
    CAPTURE(refusal.what);
    check_refused(open_array(refusal.array), refusal.code, refusal.words, refusal.at);
  }
}

TEST_CASE("refuses more dimensions than the limit") {
  std::string shape = "(";
  for (int i = 0; i < 65; ++i) shape += "1,";
  check_refused(open_text(text_of("'|u1'", shape + ")"), "1"), ErrorCode::limit_exceeded,
                "field \"shape\" has more than 64 dimensions", array_begin + 61 + 128);
}

TEST_CASE("refuses two arrays of one name, names of no arrays that differ in case, and too many") {
  CHECK_FAILS(open_with({{"w.npy", good}, {"w.npy", good}}), ErrorCode::corrupt,
              "two records are named \"w.npy\"");
  CHECK_FAILS(open_with({{"w.npy", good}, {"README", ""}, {"readme", ""}}), ErrorCode::corrupt,
              "are named alike but for case");
  CHECK_FAILS(open_with({{"a.npy", good}, {"b.npy", good}}, {.limits = {.tensors = 1}}),
              ErrorCode::limit_exceeded, "has 2 records, more than the limit of 1");
}

TEST_CASE("names may differ in case alone, which numpy does not ignore") {
  for (const char* other : {"v.npy", "readme", "a/Readme"}) {
    const Checkpoint made = open_with({{"W.npy", good}, {"w.npy", good}, {other, good}}).value();
    CHECK(descriptions(made).starts_with("W float32 2/1\nw float32 2/1\n"));
  }
}

TEST_CASE("refuses an archive that was cut anywhere, and opens with any byte flipped or says why") {
  const std::string whole = test::read_file(files / "versions.npz");
  const TemporaryFolder folder;
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK_FALSE(Checkpoint::open(folder.write("a.npz", whole.substr(0, size))).has_value());
  const OpenOptions options{.verify = Verify::crc};
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] ^= 0x10;
    const Result<Checkpoint> read = Checkpoint::open(folder.write("a.npz", flipped), options);
    if (!read) CHECK_FALSE(read.error().message.empty());
  }
}

TEST_CASE("refuses to convert opaque elements, which neither torch nor safetensors has") {
  const TemporaryFolder folder;
  const std::filesystem::path from =
      folder.write("a.npy", array_of(text_of("'<V2'", "(2,)"), "\x80\x3f\0\x40"s));
  CHECK_FAILS(weightmap::convert(from, folder.path() / "a.pt", {}), ErrorCode::unsupported,
              "is of opaque[2], which torch does not have");
  CHECK_FAILS(weightmap::convert(from, folder.path() / "a.safetensors", {}), ErrorCode::unsupported,
              "is of opaque[2], which safetensors has not");
}
