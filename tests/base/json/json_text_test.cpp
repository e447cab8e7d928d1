#include "runtime/base/json/json_text.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace weightmap::json {
namespace {

std::string kept(std::string_view text) {
  std::string out;
  append_string(out, text);
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  append_string(out, text, BeyondAscii::escaped);
  return out;
}

TEST_SUITE("json text") {
  TEST_CASE("plain text stands in quotes") {
    CHECK(kept("") == R"("")");
    CHECK(kept("a b/'~") == R"("a b/'~")");
    CHECK(escaped("a b/'~") == R"("a b/'~")");
  }

  TEST_CASE("what JSON must escape is escaped as shortly as can be") {
    const std::string_view text("\"\\\b\f\n\r\t\0\x01\x1f", 10);
    CHECK(kept(text) == R"("\"\\\b\f\n\r\t\u0000\u0001\u001f")");
    CHECK(escaped(text) == R"("\"\\\b\f\n\r\t\u0000\u0001\u001f")");
  }

  TEST_CASE("characters beyond ASCII stay, or are escaped as Python does it") {
    const std::string text = "\x7f\xc3\xa9\xe2\x82\xac\xef\xbf\xbf\xf0\x90\x80\x80\xf0\x9f\x98\x80";
    CHECK(kept(text) == '"' + text + '"');
    CHECK(escaped(text) == R"("\u007f\u00e9\u20ac\uffff\ud800\udc00\ud83d\ude00")");
  }

  TEST_CASE("text goes behind what is there") {
    std::string out = "{";
    append_string(out, "k");
    CHECK(out == "{\"k\"");
  }
}

}  // namespace
}  // namespace weightmap::json
