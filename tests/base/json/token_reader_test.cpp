// What the reader of JSON text takes, and what it refuses and where. The texts are of the kinds
// that collections of tests of JSON parsers have.
#include "runtime/base/json/token_reader.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory_resource>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/json/json_tree.hpp"

using namespace weightmap;
using namespace std::string_literals;
using json::TokenReader;
using Next = TokenReader::Next;

namespace {

using Number = std::variant<std::int64_t, double>;

// Whether the whole text is one JSON value; if not, `error` says where it goes wrong.
bool is_json(std::string_view text, Error& error) {
  value::Builder build(*std::pmr::new_delete_resource(), {1 << 24, 100});
  const Result<value::Cell> read = json::add_document(build, text);
  if (!read) error = read.error();
  return read.has_value();
}

void check_accepted(std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    CAPTURE(text);
    Error error;
    CHECK_MESSAGE(is_json(text, error), error.message);
  }
}

// Each is a text with a ^ before the first wrong byte.
void check_refused(std::initializer_list<std::string> marked_texts) {
  for (const std::string& marked : marked_texts) {
    CAPTURE(marked);
    std::string text = marked;
    const std::size_t mark = text.find('^');
    text.erase(mark, 1);
    Error error;
    REQUIRE_FALSE(is_json(text, error));
    CHECK(error.code == ErrorCode::corrupt);
    CHECK(error.message == "is not JSON");
    CHECK(error.file_offset == mark);
  }
}

std::string text_of(const std::string& quoted) {
  TokenReader json(quoted);
  std::string_view text;
  REQUIRE(json.string(text));
  REQUIRE(json.end());
  return std::string(text);
}

// What natural() makes of the text, or its error.
struct Natural {
  explicit Natural(const std::string& text) {
    TokenReader json(text);
    is_taken = json.natural(value) && json.end();
    if (!is_taken) error = json.error();
  }
  std::uint64_t value = 7;
  bool is_taken;
  Error error;
};

Number number_of(const std::string& text) {
  TokenReader json(text);
  Number number;
  REQUIRE(json.number(number));
  REQUIRE(json.end());
  return number;
}

}  // namespace

TEST_CASE("takes arrays of every length and content") {
  check_accepted({"[]", "[ ]", "[[]]", "[[],[]]", "[1]", "[1,2]", "[null, 1, \"1\", {}]", "[\"\"]",
                  "[1\n]", " [1]", "[2] ", "[1,null,null,null,2]", "[false]", "[true]"});
}

TEST_CASE("refuses arrays with commas, colons or ends in the wrong places") {
  check_refused({"[^", "^]", "[1^", "[1,^", "[1,^]", "[^,]", "[^,1]", "[1,^,2]", "[1 ^2]", "[1^;2]",
                 "[1^:2]", "[1]^]", "[1^}", "[[1]^", "[1]^,", "[1]^x", "[ ^, \"\"]", "[\"\",^]"});
  check_refused({"[1,\n1\n,1^", "[\"a\",\n4\n,1,^", "[]^[]", "[1] ^[2]", "[\"x\"^", "[3^[4]]",
                 "[^*]", "[\"\"^: 1]", "[1 ^", "[[] ^[1]]", "[1 ^\"a\"]", "[1^\"a\"]"});
}

TEST_CASE("takes objects of every length and content") {
  check_accepted({"{}", "{ }", R"({"a":1})", R"({"":0})", R"({"a":{},"b":[]})",
                  R"({"\u0061\"":"\\"})", "{\n\"a\":\n\"b\"\n}", R"({ "a" : 1 , "b" : 2 })",
                  "{\"foo\\u0000bar\": 42}"});
}

TEST_CASE("refuses objects with commas, colons, keys or ends in the wrong places") {
  check_refused({"{^", "^}", "{^]", "{\"a\"^", "{\"a\"^}", "{\"a\":^", "{\"a\":^}", "{\"a\" ^1}",
                 "{\"a\":^:1}", "{\"a\":1^", "{\"a\":1,^", "{\"a\":1,^}", "{\"a\":1,^,\"b\":2}",
                 "{^,\"a\":1}", "{^:1}", "{^1:1}", "{^a:1}", "{^'a':1}"});
  check_refused({"{^null:1}", "{^[]:1}", "{\"a\":1^]", "{\"a\":1}^}", "{\"a\":1 ^\"b\":2}",
                 "{\"a\"^,1}", "{\"a\":1}^#", "{\"a\":^/**/1}", "{\"a\":1}^//", "{\"a\" : 1 ^/",
                 "{\"a\" ^12}", "{\"a\": 1 ^\"b\": 2}", "{\"a\": \"b\" ^\"cd\"}", "{^12: 3}"});
}

TEST_CASE("takes single values as documents") {
  check_accepted({"null", "true", "false", "0", "-0.5", "\"\"", "\"a\"", " 1 ", "[]", "{}"});
}

TEST_CASE("refuses texts without a value, and with more behind it") {
  check_refused({"^", " ^", " \n\t\r^", "^\xef\xbb\xbf{}", "^\xff\xfe{\0}\0"s, "1 ^2", "{} ^{}",
                 "{}^\0"s, "^\0{}"s, "null^,", "^<null>", "^\xe2\x81\xa0[]", "^# comment"});
}

TEST_CASE("takes true, false and null only as they are written") {
  check_refused({"nul^", "nul^L", "^Null", "^NULL", "tru^", "tru^f", "^True", "fals^", "fals^y",
                 "n^an", "^NaN", "^Infinity", "-^Infinity", "-^NaN", "^undefined", "true^true",
                 "null^x", "[nul^]"});
  check_refused({"t^", "[n^", "true^false", "{\"a\": nul^\"b\"}"});
  bool value = true;
  TokenReader json("[false,true]");
  REQUIRE(json.enter_array());
  REQUIRE(json.next_element());
  CHECK(json.boolean(value));
  CHECK(value == false);
  REQUIRE(json.next_element());
  CHECK(json.boolean(value));
  CHECK(value == true);
}

TEST_CASE("takes blanks of four kinds wherever there may be some") {
  check_accepted(
      {" \t\r\n{ \t\r\n\"a\" \t\r\n: \t\r\n[ \t\r\n1 \t\r\n, \t\r\n2 \t\r\n] \t\r\n} \n"});
}

TEST_CASE("refuses other characters that look like blanks") {
  check_refused(
      {"[^\f]", "[^\v]", "[^\xc2\xa0]", "[^\xe2\x80\xa8]", "[^\x1f]", "[^\0]"s, "^\f[]", "[1^\b]"});
}

TEST_CASE("takes numbers of every form") {
  check_accepted(
      {"0", "-0", "1", "-1", "10", "123", "1.0", "-1.25", "0.5", "0e0", "0e+1", "1e5", "1E5"});
  check_accepted({"1e+5", "1E-5", "1.5e+5", "123.456e78", "-0.000001", "20e1", "1.0e-28",
                  "9223372036854775807", "-9223372036854775808", "[4 ]", "1e-300", "0.1e1"});
}

TEST_CASE("refuses what is nearly a number") {
  check_refused({"-^", "^+1", "^++1", "-^-1", "0^1", "-0^1", "0^0", "1.^", "^.5", "-^.5", "1.^.2",
                 "1.^e1", "0.^e1", "1e^", "1E+^", "1e-^", "1e+^-1", "1e^e1"});
  check_refused({"1e1^.5", "1.2^.3", "0^x10", "1^_000", "1 ^000", "1^,", "-^ 1", "1^a",
                 "^\xef\xbc\x91", "[-^]", "[1.^]", "[-2.^]", "[0.3e^]", "[0e+^]", "[1^+2]",
                 "[-0^12]", "[-^foo]", "[1e^]"});
  check_refused({"1e^\xe5", "[-^ 1]", "1^f", "[-0^-12]", "0^x1"});
}

TEST_CASE("numbers without fraction and exponent are integers, others doubles") {
  CHECK(number_of("0") == Number(std::int64_t{0}));
  CHECK(number_of("-0") == Number(std::int64_t{0}));
  CHECK(number_of("-17") == Number(std::int64_t{-17}));
  CHECK(number_of("9223372036854775807") == Number(std::int64_t{INT64_MAX}));
  CHECK(number_of("-9223372036854775808") == Number(std::int64_t{INT64_MIN}));
  CHECK(number_of("1.0") == Number(1.0));
  CHECK(number_of("1e3") == Number(1000.0));
  CHECK(number_of("-2.5E-1") == Number(-0.25));
  CHECK(number_of("1.7976931348623157e308") == Number(1.7976931348623157e308));
  CHECK(number_of("5e-324") == Number(5e-324));
}

TEST_CASE("refuses numbers that fit neither an integer nor a double") {
  for (const auto& [text, message] :
       {std::pair{"[9223372036854775808]", "a number is larger than 2^63 - 1"},
        {"[-9223372036854775809]", "a number is smaller than -2^63"},
        {"[100000000000000000000]", "a number is larger than 2^63 - 1"},
        {"[1e309]", "a number does not fit a double"},
        {"[-1.8e308]", "a number does not fit a double"}}) {
    const std::string_view captured = text;
    CAPTURE(captured);
    Error error;
    REQUIRE_FALSE(is_json(text, error));
    CHECK(error.code == ErrorCode::corrupt);
    CHECK(error.message == message);
    CHECK(error.file_offset == 1);
  }
}

TEST_CASE("natural numbers go up to 2^64 - 1") {
  for (const auto& [text, value] : {std::pair{"0", std::uint64_t{0}},
                                    {"7", 7},
                                    {" \t\n 42 ", 42},
                                    {"1000000000000000000", 1000000000000000000u},
                                    {"9223372036854775807", 9223372036854775807u},
                                    {"9223372036854775808", 9223372036854775808u},
                                    {"9999999999999999999", 9999999999999999999u},
                                    {"10000000000000000000", 10000000000000000000u},
                                    {"18446744073709551615", UINT64_MAX}}) {
    const Natural natural(text);
    const std::string_view captured = text;
    CAPTURE(captured);
    REQUIRE(natural.is_taken);
    CHECK(natural.value == value);
  }
}

TEST_CASE("refuses what is no natural number below 2^64, and says where") {
  // As in check_refused().
  const auto refuses = [](std::initializer_list<std::string> marked_texts, const char* message) {
    for (const std::string& marked : marked_texts) {
      CAPTURE(marked);
      std::string text = marked;
      const std::size_t mark = text.find('^');
      const Natural natural(text.erase(mark, 1));
      REQUIRE_FALSE(natural.is_taken);
      CHECK(natural.error.code == ErrorCode::corrupt);
      CHECK(natural.error.message == message);
      CHECK(natural.error.file_offset == mark);
    }
  };
  refuses({"^18446744073709551616", "^18446744073709551620", "^20000000000000000000",
           "^99999999999999999999", "^100000000000000000000",
           "^18446744073709551615000000000000000000000"},
          "a number is larger than 2^64 - 1");
  refuses({"^-1", "^-0", "^1.5", "^4.0", "^4e0", " ^4E2", "^18446744073709551616.5"},
          "expected a whole number, found a number");
  refuses({"^\"1\""}, "expected a whole number, found a string");
  refuses({"^[1]"}, "expected a whole number, found an array");
  refuses({"^{}"}, "expected a whole number, found an object");
  refuses({"^true"}, "expected a whole number, found a boolean");
  refuses({"^null"}, "expected a whole number, found null");
  refuses({"0^1", "0^0", "0^123456789012345678901", "1.^", "1e^", "^+1", "^", "1^x", "^x"},
          "is not JSON");
}

TEST_CASE("reads each escape as what it stands for") {
  CHECK(text_of(R"("\"\\\/\b\f\n\r\t")") == "\"\\/\b\f\n\r\t");
  CHECK(text_of(R"("a\u0041b\u00e9c\u20acd")") ==
        "aAb\xc3\xa9"
        "c\xe2\x82\xac"
        "d");
  CHECK(text_of(R"("\u00E9\u00e9")") == "\xc3\xa9\xc3\xa9");
  CHECK(text_of(R"("\u0000")") == "\0"s);
  CHECK(text_of(R"("\u007f\u0080\u07ff\u0800\uffff")") ==
        "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf");
  CHECK(text_of(R"("\\u0041")") == "\\u0041");
  CHECK(text_of(R"("ends with \\")") == "ends with \\");
  CHECK(text_of("\"seven..\\n\"") == "seven..\n");
}

TEST_CASE("reads surrogate pairs as one character") {
  CHECK(text_of(R"("\ud83d\ude00")") == "\xf0\x9f\x98\x80");
  CHECK(text_of(R"("\uD800\uDC00")") == "\xf0\x90\x80\x80");
  CHECK(text_of(R"("\uDBFF\uDFFF")") == "\xf4\x8f\xbf\xbf");
  CHECK(text_of(R"("\ud7ff\ue000")") == "\xed\x9f\xbf\xee\x80\x80");
}

TEST_CASE("refuses surrogates without their other half") {
  check_refused({R"("\^ud800")", R"("\^udc00")", R"("\^ud800a")", R"("\^ud800\n")",
                 R"("\^ud800\ud800")", R"("\^ud800\u0041")", R"("\^ud800\ue000")",
                 R"("\^udc00\udc00")", R"("\^udc00\ud800")", R"("ab\^uDFFF")", R"("\ud800\u00^")",
                 R"("\^ud800\ud800\udc00")"});
}

TEST_CASE("refuses escapes that JSON does not have") {
  check_refused({R"("\^a")", R"("\^x41")", R"("\^'")", R"("\^0")", R"("\^U0041")", R"("\u^")",
                 R"("\u0^")", R"("\u004^")", R"("\u004^g")", R"("\u^G041")", R"("\u^-041")",
                 R"("\u^ 041")", "\"\\^", "\"\\u00^", "\"\\\"^", "\"\\^\n\"", "\"\\^\xc3\xa9\"",
                 "\"\\u00^\xe9\xe9\""});
}

TEST_CASE("takes UTF-8 as it is") {
  for (const char* text :
       {"\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbd",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "\xef\xbb\xbf", "\x7f"})
    CHECK(text_of("\"" + std::string(text) + "\"") == text);
}

TEST_CASE("refuses what is not UTF-8 at each place of a word of eight bytes") {
  for (const char* wrong : {"\x80",
                            "\xbf",
                            "\xc0\x80",
                            "\xc1\xbf",
                            "\xc3",
                            "\xc3(",
                            "\xe0\x80\x80",
                            "\xe0\x9f\xbf",
                            "\xe2\x82",
                            "\xe2\x28\xa1",
                            "\xed\xa0\x80",
                            "\xed\xbf\xbf",
                            "\xf0\x80\x80\x80",
                            "\xf0\x8f\xbf\xbf",
                            "\xf0\x9f\x98",
                            "\xf4\x90\x80\x80",
                            "\xf5\x80\x80\x80",
                            "\xf8\x88\x80",
                            "\xfe",
                            "\xff"})
    for (std::size_t before = 0; before < 17; ++before) {
      const std::string text = "\"" + std::string(before, 'a') + wrong + "bcdefghijkl\"";
      CAPTURE(text);
      Error error;
      REQUIRE_FALSE(is_json(text, error));
      CHECK(error.message == "is not JSON");
      CHECK(error.file_offset == 1 + before);
    }
}

TEST_CASE("refuses raw control characters at each place of a word of eight bytes") {
  for (char wrong = 0; wrong < 0x20; ++wrong)
    for (std::size_t before = 0; before < 17; ++before) {
      const std::string text = "\"" + std::string(before, 'a') + wrong + "bcdefghijkl\"";
      CAPTURE(text);
      Error error;
      REQUIRE_FALSE(is_json(text, error));
      CHECK(error.file_offset == 1 + before);
    }
}

TEST_CASE("finds the end of a string at each place of a word of eight bytes") {
  for (std::size_t length = 0; length < 40; ++length)
    for (const char* behind : {"", "        ", "\n"}) {
      const std::string plain(length, '!');
      CHECK(text_of("\"" + plain + "\"" + behind) == plain);
      CHECK(text_of("\"" + plain + "\\n\"" + behind) == plain + "\n");
      CHECK(text_of("\"" + plain + "\xc3\xa9" + plain + "\"" + behind) ==
            plain + "\xc3\xa9" + plain);
      check_refused({"\"" + plain + "^"});
    }
}

TEST_CASE("refuses strings that do not begin or end as strings do") {
  check_refused({"\"^", "\"a^", "\"a\"^\"", "^'a'", "^a\"", "\"a\"^b", "\"a^\nb\"", "\"a^\tb\"",
                 "\"^\0\""s, "^`a`", "^\xe2\x80\x9c\x61\xe2\x80\x9d"});
}

TEST_CASE("a text without escapes is a part of what is read, and no copy") {
  const std::string text = R"(["plain", "esc\u0061ped", "p2", ""]        )";
  TokenReader json(text);
  std::vector<std::string_view> plain;
  REQUIRE(json.enter_array());
  for (std::string_view one; json.next_element() && json.string(one);)
    if (one.data() > text.data() && one.data() < text.data() + text.size()) plain.push_back(one);
  REQUIRE(json.end());
  CHECK(plain == std::vector<std::string_view>{"plain", "p2", ""});
  CHECK(plain[0].data() == text.data() + 2);
}

TEST_CASE("each text is valid as long as the reader is") {
  std::string text = "[";
  std::vector<std::string> expected;
  for (int i = 0; i < 1000; ++i) {
    text += R"("\u0061)" + std::to_string(i) + "\xc3\xa9\",";
    expected.push_back("a" + std::to_string(i) + "\xc3\xa9");
  }
  text.back() = ']';
  TokenReader json(text);
  std::vector<std::string_view> texts;
  REQUIRE(json.enter_array());
  while (json.next_element()) REQUIRE(json.string(texts.emplace_back()));
  REQUIRE(json.end());
  CHECK(std::ranges::equal(texts, expected));
}

TEST_CASE("nests 64 containers deep and says where the 65th begins") {
  Error error;
  CHECK(is_json(std::string(64, '[') + std::string(64, ']'), error));
  std::string objects, ends;
  for (int i = 0; i < 64; ++i) {
    objects += "{\"a\":";
    ends += '}';
  }
  CHECK(is_json(objects + "1" + ends, error));
  for (const auto& [text, position] : {std::pair{std::string(65, '[') + std::string(65, ']'), 64u},
                                       {std::string(64, '[') + " {}" + std::string(64, ']'), 65},
                                       {objects + "{}" + ends, 320},
                                       {std::string(100000, '['), 64}}) {
    REQUIRE_FALSE(is_json(text, error));
    CHECK(error.code == ErrorCode::corrupt);
    CHECK(error.message == "nests deeper than 64 containers");
    CHECK(error.file_offset == position);
  }
}

TEST_CASE("containers behind one another do not count as nested") {
  std::string text = "[[[]]";
  for (int i = 0; i < 1000; ++i) text += ",{\"a\":[[]]}";
  Error error;
  CHECK_MESSAGE(is_json(text + "]", error), error.message);
}

TEST_CASE("says which kind of value it was asked for and which it found") {
  const auto message_of = [](const char* text, auto ask) {
    TokenReader json(text);
    REQUIRE_FALSE(ask(json));
    CHECK(json.error().file_offset == 1);
    return json.error().message;
  };
  std::string_view text;
  bool boolean = false;
  Number number;
  const auto object = [](TokenReader& json) { return json.enter_object(); };
  const auto array = [](TokenReader& json) { return json.enter_array(); };
  CHECK(message_of(" []", object) == "expected an object, found an array");
  CHECK(message_of(" {}", array) == "expected an array, found an object");
  CHECK(message_of(" 1", array) == "expected an array, found a number");
  CHECK(message_of(" null", [&](TokenReader& json) { return json.string(text); }) ==
        "expected a string, found null");
  CHECK(message_of(" \"\"", [&](TokenReader& json) { return json.number(number); }) ==
        "expected a number, found a string");
  CHECK(message_of(" 0", [&](TokenReader& json) { return json.boolean(boolean); }) ==
        "expected true or false, found a number");
  CHECK(message_of(" true", [](TokenReader& json) { return json.null(); }) ==
        "expected null, found a boolean");
  CHECK(message_of(" x", object) == "is not JSON");
}

TEST_CASE("after an error each call answers false and the error stays") {
  TokenReader json("[x, {\"a\": 1}, \"b\", true, null]");
  REQUIRE(json.enter_array());
  REQUIRE(json.next_element());
  std::uint64_t natural = 5;
  CHECK_FALSE(json.natural(natural));
  REQUIRE(json.failed());
  std::string_view text = "untouched";
  Number number = 2.5;
  bool boolean = true;
  CHECK_FALSE(json.next_element());
  CHECK_FALSE(json.next_key(text));
  CHECK_FALSE(json.enter_object());
  CHECK_FALSE(json.enter_array());
  CHECK_FALSE(json.string(text));
  CHECK_FALSE(json.natural(natural));
  CHECK_FALSE(json.number(number));
  CHECK_FALSE(json.boolean(boolean));
  CHECK_FALSE(json.null());
  CHECK_FALSE(json.end());
  CHECK(natural == 5);
  CHECK(text == "untouched");
  CHECK(number == Number(2.5));
  CHECK(boolean == true);
  CHECK(json.error().message == "is not JSON");
  CHECK(json.error().file_offset == 1);
}

TEST_CASE("an error of the caller's ends the reading, too") {
  TokenReader json("[1, 2]");
  REQUIRE(json.enter_array());
  REQUIRE(json.next_element());
  std::uint64_t natural = 0;
  REQUIRE(json.natural(natural));
  CHECK_FALSE(json.fail("has a number that nobody wants", json.position()));
  CHECK_FALSE(json.next_element());
  CHECK_FALSE(json.end());
  CHECK(json.error().code == ErrorCode::corrupt);
  CHECK(json.error().message == "has a number that nobody wants");
  CHECK(json.error().file_offset == 1);
}

TEST_CASE("a caller who knows what a container begins with may go past it") {
  TokenReader json(R"({"a": [1, 2], "b": 3})");
  std::string_view key;
  REQUIRE(json.enter_object());
  CHECK(json.rest() == R"("a": [1, 2], "b": 3})");
  json.skip_items(11);
  REQUIRE(json.next_key(key));
  CHECK(key == "b");
  std::uint64_t number = 0;
  REQUIRE(json.natural(number));
  CHECK(number == 3);
  CHECK_FALSE(json.next_key(key));
  CHECK(json.end());
}

TEST_CASE("a text cut at any length is no JSON, and nothing behind it is read") {
  const std::string text =
      R"({"a\u0041\ud83d\ude00": [1, -2.5e3, true, false, null, "é"], "b": {}})";
  for (std::size_t length = 0; length < text.size(); ++length) {
    // Memory of just this length, behind which a sanitizer would see a read.
    const std::vector<char> cut(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));
    CAPTURE(length);
    Error error;
    REQUIRE_FALSE(is_json({cut.data(), cut.size()}, error));
    CHECK(error.message == "is not JSON");
    CHECK(error.file_offset <= length);
  }
  Error error;
  CHECK(is_json(text, error));
}
