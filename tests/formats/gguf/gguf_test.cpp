// Files of the GGUF format, written out as bytes: what is read of them. What is refused is in
// tests/hostile/gguf_cases.py, but for what takes limits of one's own or all bytes in turn.
#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/formats/gguf/parse_gguf.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/parsed_file.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"

using namespace weightmap;
using namespace std::string_literals;
using test::data_of;
using test::TemporaryFolder;
using File = test::ParsedFile<gguf::parse>;
using Gguf = test::GgufBuilder;

namespace {

constexpr std::int32_t f32 = 0;
constexpr std::int32_t i8 = 24;

std::string tensors_of(const Gguf& gguf) { return File(gguf.file()).tensors(); }

std::string shown(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::boolean:
      return *value.boolean() ? "true" : "false";
    case Value::Kind::integer:
      return std::to_string(*value.integer());
    case Value::Kind::real:
      return std::to_string(*value.real()) + "f";
    case Value::Kind::string:
      return "'" + std::string(*value.string()) + "'";
    case Value::Kind::bytes:
      return std::to_string(value.bytes()->size()) + " bytes";
    case Value::Kind::big_integer:
      return "integer of " + std::to_string(value.big_integer()->size()) + " bytes";
    case Value::Kind::list: {
      std::string text = "[";
      for (const Value& element : value.elements())
        text += (text.size() == 1 ? "" : ", ") + shown(element);
      return text + "]";
    }
    default:
      return std::string(to_string(value.kind()));
  }
}

std::string metadata_of(const std::string& content) {
  const File file(content);
  std::string text;
  for (const auto& [key, value] : file.root().items())
    text += (text.empty() ? "" : "; ") + std::string(*key.string()) + " = " + shown(value);
  return text;
}

void check_refused(const std::string& content, const std::string& message, std::uint64_t at,
                   ErrorCode code = ErrorCode::corrupt, const Limits& limits = {}) {
  const File file(content, limits);
  REQUIRE_FALSE(file.parsed.has_value());
  CHECK(file.error.message == message);
  CHECK(file.error.file_offset == at);
  CHECK(to_string(file.error.code) == to_string(code));
}

// A tensor alone: its description begins at byte 24 of a file without metadata.
void check_tensor_refused(const std::vector<std::int64_t>& ne, std::int32_t type,
                          std::uint64_t offset, const std::string& message, std::uint64_t at,
                          ErrorCode code = ErrorCode::corrupt) {
  check_refused(Gguf().describe("a", ne, type, offset).file() + std::string(4096, '\0'), message,
                at, code);
}

std::string floats(std::size_t count) { return data_of(4 * count); }

}  // namespace

// What is accepted.

TEST_CASE("HEADER_EMPTY: a file without metadata and tensors is empty") {
  const std::string content = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"s;
  const File file(content);
  CHECK(file.root().kind() == Value::Kind::dict);
  CHECK(file.root().item_count() == 0);
  CHECK(file.parsed->catalog.size() == 0);
  CHECK(file.parsed->facts.format == Format::gguf);
  CHECK(file.parsed->facts.version == 3);
  CHECK(file.parsed->facts.byteorder == "little");
  CHECK(file.parsed->facts.storage_alignment == 32);
  CHECK(file.parsed->facts.pickle_bytes == 24);
  CHECK(file.parsed->facts.unread_bytes == 0);
  CHECK(file.parsed->facts.names_torch_safe_only);
  CHECK_FALSE(file.parsed->split.has_value());
  CHECK(file.stats.reads == 1);
}

TEST_CASE("a file with a tensor, byte for byte") {
  const std::string content =
      "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"s               // 24
      "\4\0\0\0\0\0\0\0t.u8\0\0\0\0\7"s                             // 41
      "\1\0\0\0\0\0\0\0w\2\0\0\0\3\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"s  // 70
      "\1\0\0\0\0\0\0\0\0\0\0\0"s +                                 // 82
      std::string(14, '\0') +
      "\0\1\2\3\4\5\6\7\x8\x9\xa\xb"s;  // 96
  CHECK(metadata_of(content) == "t.u8 = 7");
  const File file(content);
  CHECK(file.tensors() == "w: float16 [2, 3] at 96, 12 bytes");
  CHECK(Gguf()
            .pair("t.u8", Gguf::u8, "\7")
            .tensor("w", {3, 2}, 1, "\0\1\2\3\4\5\6\7\x8\x9\xa\xb"s)
            .file() == content + std::string(20, '\0'));
}

TEST_CASE("KV_SUCCESS: each type of value") {
  for (const bool is_big : {false, true}) {
    const Gguf g(is_big);
    Gguf made(is_big);
    made.pair("u8", Gguf::u8, "\xff")
        .pair("i8", Gguf::i8, "\xff")
        .pair("u16", Gguf::u16, g.number<std::uint16_t>(65535))
        .pair("i16", Gguf::i16, g.number<std::int16_t>(-2))
        .pair("u32", Gguf::u32, g.number<std::uint32_t>(4294967295))
        .pair("i32", Gguf::i32, g.number<std::int32_t>(-3))
        .pair("f32", Gguf::f32, g.number(1.5f))
        .pair("no", Gguf::boolean, "\0"s)
        .pair("yes", Gguf::boolean, "\1")
        .pair("text", Gguf::string, g.text("a\xc3\xa9"))
        .pair("empty", Gguf::string, g.text(""))
        .pair("u64", Gguf::u64, g.number<std::uint64_t>(9223372036854775807))
        .pair("large", Gguf::u64, g.number<std::uint64_t>(9223372036854775808u))
        .pair("i64", Gguf::i64, g.number<std::int64_t>(-4))
        .pair("f64", Gguf::f64, g.number(-0.25));
    CHECK(metadata_of(made.file()) ==
          "u8 = 255; i8 = -1; u16 = 65535; i16 = -2; u32 = 4294967295; i32 = -3; f32 = 1.500000f; "
          "no = false; yes = true; text = 'a\xc3\xa9'; empty = ''; u64 = 9223372036854775807; "
          "large = integer of 9 bytes; i64 = -4; f64 = -0.250000f");
  }
}

TEST_CASE("an array of each type") {
  for (const bool is_big : {false, true}) {
    const Gguf g(is_big);
    Gguf made(is_big);
    made.pair("u8", Gguf::array, g.list(Gguf::u8, 2, "\0\xff"s))
        .pair("i8", Gguf::array, g.list(Gguf::i8, 2, "\x80\x7f"s))
        .pair("u16", Gguf::array, g.list(Gguf::u16, 1, g.number<std::uint16_t>(513)))
        .pair("i16", Gguf::array, g.list(Gguf::i16, 1, g.number<std::int16_t>(-513)))
        .pair("u32", Gguf::array,
              g.list(Gguf::u32, 1, g.number<std::uint32_t>(std::uint32_t{1} << 31)))
        .pair("i32", Gguf::array, g.list(Gguf::i32, 1, g.number<std::int32_t>(-7)))
        .pair("f32", Gguf::array, g.list(Gguf::f32, 2, g.number(0.5f) + g.number(-2.f)))
        .pair("bool", Gguf::array, g.list(Gguf::boolean, 3, "\1\0\1"s))
        .pair("string", Gguf::array,
              g.list(Gguf::string, 3, g.text("a") + g.text("") + g.text("bc")))
        .pair("u64", Gguf::array, g.list(Gguf::u64, 1, g.number<std::uint64_t>(8)))
        .pair("i64", Gguf::array, g.list(Gguf::i64, 1, g.number<std::int64_t>(-8)))
        .pair("f64", Gguf::array, g.list(Gguf::f64, 1, g.number(3.0)))
        .pair("none", Gguf::array, g.list(Gguf::string, 0, ""));
    CHECK(metadata_of(made.file()) ==
          "u8 = [0, 255]; i8 = [-128, 127]; u16 = [513]; i16 = [-513]; u32 = [2147483648]; "
          "i32 = [-7]; f32 = [0.500000f, -2.000000f]; bool = [true, false, true]; "
          "string = ['a', '', 'bc']; u64 = [8]; i64 = [-8]; f64 = [3.000000f]; none = []");
  }
}

TEST_CASE("arrays of arrays, which gguf-py writes and ggml refuses") {
  const Gguf g;
  const std::string inner = g.list(Gguf::u8, 2, "\1\2");
  CHECK(metadata_of(Gguf()
                        .pair("a", Gguf::array,
                              g.list(Gguf::array, 3,
                                     inner + g.list(Gguf::array, 1, g.list(Gguf::string, 0, "")) +
                                         g.list(Gguf::boolean, 1, "\1")))
                        .pair("b", Gguf::u8, "\5")
                        .file()) == "a = [[1, 2], [[]], [true]]; b = 5");
}

TEST_CASE("arrays nest as deep as the limit allows, counting the dict that they are in") {
  const Gguf g;
  const Limits limits{.depth = 5};
  const auto nested = [&g](std::size_t levels) {
    std::string value;
    for (std::size_t i = 1; i < levels; ++i) value += g.list(Gguf::array, 1, "");
    return Gguf().pair("deep", Gguf::array, value + g.list(Gguf::u8, 0, "")).file();
  };
  const File fits(nested(4), limits);
  CHECK(shown(*fits.root().find("deep")) == "[[[[]]]]");
  check_refused(nested(5),
                "metadata key 0 \"deep\": the arrays nest deeper than the limit of 5 "
                "containers",
                24 + 16 + 4 * 12, ErrorCode::limit_exceeded, limits);
  check_refused(nested(100000),
                "metadata key 0 \"deep\": the arrays nest deeper than the limit of 1000 containers",
                24 + 16 + 999 * 12, ErrorCode::limit_exceeded);
}

TEST_CASE("long arrays, in more than one batch of cells") {
  const Gguf g;
  for (const std::size_t count : {253u, 254u, 255u, 508u, 100'000u}) {
    std::string tokens, numbers;
    for (std::size_t i = 0; i < count; ++i) {
      tokens += g.text("t" + std::to_string(i));
      numbers += g.number(static_cast<std::uint32_t>(i));
    }
    const File file(Gguf()
                        .pair("tokens", Gguf::array, g.list(Gguf::string, count, tokens))
                        .pair("numbers", Gguf::array, g.list(Gguf::u32, count, numbers))
                        .file());
    const Value root = file.root();
    REQUIRE(root.find("tokens")->size() == count);
    REQUIRE(root.find("numbers")->size() == count);
    std::size_t at = 0;
    for (const Value& token : root.find("tokens")->elements())
      REQUIRE(*token.string() == "t" + std::to_string(at++));
    at = 0;
    for (const Value& number : root.find("numbers")->elements())
      REQUIRE(*number.integer() == static_cast<std::int64_t>(at++));
  }
}

TEST_CASE("strings that are not UTF-8 are bytes") {
  const Gguf g;
  CHECK(metadata_of(Gguf()
                        .pair("a", Gguf::string, g.text("\xff\xfe"))
                        .pair("b", Gguf::array,
                              g.list(Gguf::string, 3, g.text("a") + g.text("\xc3") + g.text("b")))
                        .file()) == "a = 2 bytes; b = ['a', 1 bytes, 'b']");
}

TEST_CASE("metadata of megabytes are read in a few pieces, and the tensors are not") {
  const Gguf g;
  std::string tokens;
  for (std::size_t i = 0; i < 100'000; ++i) tokens += g.text("token" + std::to_string(i));
  const std::string content =
      Gguf()
          .pair("tokens", Gguf::array, g.list(Gguf::string, 100'000, tokens))
          .tensor("w", {1 << 20, 8}, f32, floats(8 << 20))
          .file();
  const File file(content);
  REQUIRE(file.parsed.has_value());
  CHECK(file.parsed->facts.pickle_bytes > 1'700'000);
  CHECK(file.stats.reads == 5);
  CHECK(file.stats.bytes_read < 2'100'000);
}

TEST_CASE("TENSORS_SUCCESS, DATA_SUCCESS: tensors in their order, sizes the other way round") {
  const Gguf made = Gguf()
                        .tensor("matrix", {5, 3}, f32, floats(15))
                        .tensor("halves", {7, 3, 2}, 1, data_of(84))
                        .tensor("scalar", {}, f32, floats(1))
                        .tensor("", {1}, i8, "\7");
  const std::string begin = std::to_string(made.data_begin());
  CHECK(begin == "192");
  CHECK(tensors_of(made) ==
        "matrix: float32 [3, 5] at 192, 60 bytes; halves: float16 [2, 3, 7] at 256, 84 bytes; "
        "scalar: float32 [] at 352, 4 bytes; : int8 [1] at 384, 1 bytes");
}

TEST_CASE("strides are those of rows one behind the other") {
  const File file(Gguf().tensor("a", {7, 3, 2}, f32, floats(42)).file());
  REQUIRE(file.parsed.has_value());
  const std::int64_t* const dims = file.parsed->catalog.dims(file.parsed->catalog[0]);
  CHECK(std::vector<std::int64_t>(dims, dims + 6) == std::vector<std::int64_t>{2, 3, 7, 21, 7, 1});
}

TEST_CASE("TENSORS_ZERO_DIM: tensors without elements lie where the next one does") {
  CHECK(tensors_of(Gguf()
                       .tensor("none", {4, 0}, f32, "")
                       .tensor("neither", {0}, 12, "")
                       .tensor("w", {1}, f32, floats(1))
                       .tensor("last", {0, 3}, f32, "")) ==
        "none: float32 [0, 4] at 192, 0 bytes; neither: q4_K [0] at 192, 0 bytes; w: float32 [1] "
        "at 192, 4 bytes; last: float32 [3, 0] at 224, 0 bytes");
}

TEST_CASE("DATA_CUSTOM_ALIGN: each power of two up to a MiB") {
  for (std::uint32_t alignment = 1; alignment <= 1 << 20; alignment *= 2) {
    Gguf made;
    made.align(alignment).tensor("a", {3}, i8, "abc").tensor("b", {1}, f32, floats(1));
    const std::uint64_t begin = (123 + alignment - 1) / alignment * alignment;
    const std::uint64_t second = begin + (3 + alignment - 1) / alignment * alignment;
    REQUIRE(made.header().size() == 123);
    CHECK(tensors_of(made) == "a: int8 [3] at " + std::to_string(begin) +
                                  ", 3 bytes; b: float32 [1] at " + std::to_string(second) +
                                  ", 4 bytes");
    CHECK(File(made.file()).parsed->facts.storage_alignment == alignment);
  }
}

TEST_CASE("the other byte order is told by the version, and tensors have it, too") {
  Gguf made(true);
  made.align(64).tensor("a", {3, 2}, f32, floats(6)).tensor("q", {32}, 2, data_of(18));
  CHECK(made.file().substr(4, 20) == "\0\0\0\3\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\1"s);
  const File file(made.file());
  CHECK(file.tensors() == "a: float32 [2, 3] at 192, 24 bytes; q: q4_0 [32] at 256, 18 bytes");
  CHECK(file.parsed->facts.byteorder == "big");
  const bool is_foreign = std::endian::native == std::endian::little;
  for (const catalog::Entry& entry : file.parsed->catalog.entries())
    CHECK(((entry.flags & TensorView::foreign_order) != 0) == is_foreign);
}

TEST_CASE("version 2 is like version 3, in both orders") {
  for (const bool is_big : {false, true}) {
    Gguf made(is_big);
    made.version = 2;
    const File file(made.tensor("a", {2}, f32, floats(2)).file());
    REQUIRE_MESSAGE(file.parsed.has_value(), file.error.message);
    CHECK(file.parsed->facts.version == 2);
    CHECK(file.parsed->catalog[0].nbytes == 8);
  }
}

TEST_CASE("each type of tensor: its name, and how many bytes 512 elements have") {
  struct Known {
    std::int32_t number;
    std::string_view name;
    std::uint64_t bytes;
  };
  constexpr Known known[] = {
      {0, "float32", 2048},   {1, "float16", 1024}, {2, "q4_0", 288},      {3, "q4_1", 320},
      {6, "q5_0", 352},       {7, "q5_1", 384},     {8, "q8_0", 544},      {9, "q8_1", 576},
      {10, "q2_K", 168},      {11, "q3_K", 220},    {12, "q4_K", 288},     {13, "q5_K", 352},
      {14, "q6_K", 420},      {15, "q8_K", 584},    {16, "iq2_xxs", 132},  {17, "iq2_xs", 148},
      {18, "iq3_xxs", 196},   {19, "iq1_s", 100},   {20, "iq4_nl", 288},   {21, "iq3_s", 220},
      {22, "iq2_s", 164},     {23, "iq4_xs", 272},  {24, "int8", 512},     {25, "int16", 1024},
      {26, "int32", 2048},    {27, "int64", 4096},  {28, "float64", 4096}, {29, "iq1_m", 112},
      {30, "bfloat16", 1024}, {34, "tq1_0", 108},   {35, "tq2_0", 132},    {39, "mxfp4", 272},
      {40, "nvfp4", 288},     {41, "q1_0", 72},     {42, "q2_0", 144},
  };
  for (const Known& type : known) {
    CAPTURE(type.number);
    CHECK(tensors_of(Gguf().tensor("a", {256, 2}, type.number, data_of(type.bytes))) ==
          "a: " + std::string(type.name) + " [2, 256] at 96, " + std::to_string(type.bytes) +
              " bytes");
  }
}

TEST_CASE("the padding behind the last tensor may be missing; nothing else may") {
  const Gguf made = Gguf().tensor("a", {5}, f32, floats(5)).tensor("b", {3}, i8, "abc");
  const std::string whole = made.file();
  REQUIRE(whole.size() == 96 + 64);
  for (std::size_t size = 96 + 32 + 3; size <= whole.size(); ++size) {
    const File file(whole.substr(0, size));
    REQUIRE_MESSAGE(file.parsed.has_value(), file.error.message);
    CHECK(file.parsed->facts.unread_bytes == 0);
  }
  for (std::size_t size = 96; size < 96 + 32 + 3; ++size)
    check_refused(whole.substr(0, size),
                  "is truncated: the tensors of 35 bytes from byte 96 on leave the file of " +
                      std::to_string(size) + "; the download or copy is incomplete",
                  size);
}

TEST_CASE("bytes behind the last tensor are counted") {
  const std::string whole = Gguf().tensor("a", {1}, f32, floats(1)).file();
  CHECK(File(whole + "123").parsed->facts.unread_bytes == 3);
  CHECK(File(Gguf().file() + std::string(8, 'x')).parsed->facts.unread_bytes == 0);
  CHECK(File(Gguf().file() + std::string(9, 'x')).parsed->facts.unread_bytes == 1);
}

// What is refused.

TEST_CASE("HEADER_BAD_MAGIC") {
  check_refused("FUGG" + Gguf().file().substr(4), "does not begin with GGUF", 0,
                ErrorCode::not_a_checkpoint);
}

TEST_CASE("HEADER_BAD_VERSION_0, _1, _FUTURE") {
  for (const bool is_big : {false, true})
    for (const std::uint32_t version : {1u, 4u, 255u, 65535u}) {
      Gguf made(is_big);
      made.version = version;
      check_refused(made.file(),
                    "has GGUF version " + std::to_string(version) + ", expected 2 or 3", 4,
                    ErrorCode::unsupported);
    }
  Gguf made;
  made.version = 0;
  check_refused(made.file(), "has GGUF version 0, expected 2 or 3", 4);
}

TEST_CASE("more tensors than the limit") {
  Limits limits{.tensors = 1};
  const Gguf made = Gguf().tensor("a", {1}, f32, floats(1)).tensor("b", {1}, f32, floats(1));
  check_refused(made.file(), "the file has 2 tensors, more than the limit of 1", 8,
                ErrorCode::limit_exceeded, limits);
  limits.tensors = 2;
  CHECK(File(made.file(), limits).parsed.has_value());
}

TEST_CASE("KV_DUPLICATE_KEY: the first key that comes again is blamed") {
  const auto key = [](const char* name) { return std::string(name); };
  Gguf made;
  for (const char* name : {"z", "y", "a", "z", "a"}) made.pair(key(name), Gguf::u8, "\1");
  check_refused(made.file(), "the metadata have the key \"z\" twice", 24 + 3 * 14);
}

TEST_CASE("metadata longer than the limit") {
  const Gguf g;
  const Limits limits{.pickle_bytes = 60};
  const std::string value = std::string(100, 'a');
  check_refused(
      Gguf().pair("a", Gguf::string, g.text(value)).file(),
      "metadata key 0 \"a\": the string of 100 bytes goes beyond the limit of 60 bytes of "
      "metadata",
      45, ErrorCode::limit_exceeded, limits);
  check_refused(Gguf().pair("a", Gguf::array, g.list(Gguf::u8, 100, value)).file(),
                "metadata key 0 \"a\": the array of 100 elements goes beyond the limit of 60 bytes "
                "of metadata",
                49, ErrorCode::limit_exceeded, limits);
  CHECK(File(Gguf().pair("a", Gguf::string, g.text(value.substr(0, 15))).file(), limits)
            .parsed.has_value());
}

TEST_CASE("a value tree larger than its budget") {
  Limits limits{.base_memory = 100'000};
  const std::string content =
      Gguf().pair("a", Gguf::array, Gguf().list(Gguf::u8, 50'000, std::string(50'000, 'a'))).file();
  const File file(content, limits);
  REQUIRE_FALSE(file.parsed.has_value());
  CHECK(file.error.code == ErrorCode::limit_exceeded);
  CHECK(file.error.message.starts_with(
      "metadata key 0 \"a\": the value tree needs more memory than its budget of "));
  limits.base_memory = 1'000'000;
  CHECK(File(content, limits).parsed.has_value());
}

TEST_CASE("a name may have 1024 bytes, more than ggml keeps") {
  const std::string longest(1024, 'n');
  CHECK(tensors_of(Gguf().tensor(longest, {1}, i8, "a")) ==
        longest + ": int8 [1] at 1088, 1 bytes");
}

TEST_CASE("types that ggml has removed") {
  for (const auto& [number, name] : {std::pair{4, "q4_2"},
                                     {5, "q4_3"},
                                     {31, "q4_0_4_4"},
                                     {32, "q4_0_4_8"},
                                     {33, "q4_0_8_8"},
                                     {36, "iq4_nl_4_4"},
                                     {37, "iq4_nl_4_8"},
                                     {38, "iq4_nl_8_8"}})
    check_tensor_refused({32}, number, 0,
                         "tensor 0 \"a\": type " + std::to_string(number) + ", " + name +
                             ", was removed from ggml; convert the model again",
                         45, ErrorCode::unsupported);
}

TEST_CASE("a file of empty tensors that ends before they begin") {
  const std::string header = Gguf().describe("a", {0}, f32, 0).header();
  REQUIRE(header.size() == 57);
  check_refused(header,
                "is truncated: the tensors of 0 bytes from byte 64 on leave the file of 57; the "
                "download or copy is incomplete",
                57);
  CHECK(File(header + std::string(7, '\0')).parsed.has_value());
}

// Splits: what one file says.

TEST_CASE("what a file says of the split that it is a part of") {
  const File file(Gguf().split(1, 3, 7).tensor("a", {1}, f32, floats(1)).file());
  REQUIRE_MESSAGE(file.parsed.has_value(), file.error.message);
  REQUIRE(file.parsed->split.has_value());
  CHECK(file.parsed->split->number == 1);
  CHECK(file.parsed->split->count == 3);
  CHECK(file.parsed->split->tensors == 7);
}

TEST_CASE("a split of one file, or of none, is none") {
  for (const std::uint16_t count : {std::uint16_t{0}, std::uint16_t{1}})
    CHECK_FALSE(File(Gguf().split(0, count, 1).tensor("a", {1}, f32, floats(1)).file())
                    .parsed->split.has_value());
}

TEST_CASE("a split whose keys are of another type, out of range or missing") {
  const Gguf g;
  check_refused(Gguf().pair("split.count", Gguf::u32, g.number<std::uint32_t>(2)).file(),
                "metadata key 0 \"split.count\": the type is u32, expected u16", 43);
  check_refused(Gguf().split(2, 2, 1).file(),
                "metadata key \"split.no\" is 2, expected less than split.count, which is 2", 44);
  check_refused(Gguf().split(0, 2, -1).file(),
                "metadata key \"split.tensors.count\" is -1, expected a number of tensors", 102);
  check_refused(Gguf().pair("split.count", Gguf::u16, g.number<std::uint16_t>(2)).file(),
                "the metadata have split.count 2 and no split.no", 47);
}

// Any damage.

namespace {

std::string small_file(bool is_big) {
  const Gguf g(is_big);
  Gguf made(is_big);
  return made.pair("general.architecture", Gguf::string, g.text("test"))
      .pair("list", Gguf::array, g.list(Gguf::string, 2, g.text("a") + g.text("bc")))
      .pair("nested", Gguf::array,
            g.list(Gguf::array, 1, g.list(Gguf::i16, 1, g.number<std::int16_t>(5))))
      .pair("flag", Gguf::boolean, "\1")
      .align(32)
      .tensor("blocks", {32, 2}, 2, data_of(36))
      .tensor("w", {3, 2}, f32, floats(6))
      .file();
}

bool is_answered(const File& file) {
  if (file.parsed) {
    file.root();
    return true;
  }
  return !file.error.message.empty() && file.error.file_offset != Error::no_offset;
}

}  // namespace

TEST_CASE("cut anywhere, a file is refused, but behind its last tensor") {
  for (const bool is_big : {false, true}) {
    const std::string whole = small_file(is_big);
    const std::size_t end = whole.size() - 8;  // of six floats, in 32 bytes
    for (std::size_t size = 0; size <= whole.size(); ++size) {
      CAPTURE(size);
      const File file(whole.substr(0, size));
      CHECK(file.parsed.has_value() == (size >= end));
      CHECK(is_answered(file));
      if (!file.parsed) CHECK(file.error.file_offset <= size);
    }
  }
}

TEST_CASE("each byte changed in each way: the file opens or is refused") {
  for (const bool is_big : {false, true}) {
    const std::string whole = small_file(is_big);
    for (std::size_t at = 0; at < whole.size(); ++at)
      for (const int change : {0x01, 0x02, 0x10, 0x40, 0x80, 0xFF}) {
        std::string content = whole;
        content[at] = static_cast<char>(content[at] ^ change);
        CHECK(is_answered(File(content)));
      }
  }
}

// By way of open().

TEST_CASE("a file is GGUF by its content, whatever its name") {
  const TemporaryFolder folder;
  const std::string content = Gguf()
                                  .pair("general.name", Gguf::string, Gguf().text("tiny"))
                                  .tensor("w", {3, 2}, f32, floats(6))
                                  .file();
  for (const char* name : {"model.gguf", "model.bin", "model.safetensors", "model"}) {
    const auto checkpoint = Checkpoint::open(folder.write(name, content));
    REQUIRE_OK(checkpoint);
    CHECK(checkpoint->info().format == Format::gguf);
    CHECK(*checkpoint->root().find("general.name")->string() == "tiny");
    const auto tensor = checkpoint->get("w").value();
    CHECK(tensor.storage == "w");
    CHECK(tensor.location == "cpu");
    const auto elements = tensor.as<float>().value();
    CHECK(std::as_bytes(elements).size() == 24);
    CHECK(std::string(reinterpret_cast<const char*>(elements.data()), 24) == floats(6));
  }
}

TEST_CASE("a file of GGUF that ends as a zip archive is GGUF") {
  const TemporaryFolder folder;
  const std::string end = "PK\5\6"s + std::string(18, '\0');
  const std::string content = Gguf().tensor("w", {22}, i8, end).file().substr(0, 64 + 22);
  for (const char* name : {"model.gguf", "model.pt"}) {
    const auto checkpoint = Checkpoint::open(folder.write(name, content)).value();
    CHECK(checkpoint.info().format == Format::gguf);
  }
}
