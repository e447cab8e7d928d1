// Shell patterns for names: which match what, and what an escape stands for.
#include "runtime/base/name_pattern.hpp"

#include <doctest/doctest.h>

#include <string>

using weightmap::NamePattern;

namespace {

bool matches(std::string_view pattern, std::string_view name) {
  return NamePattern(pattern).matches(name);
}

std::string literal(std::string_view pattern) {
  const NamePattern parsed(pattern);
  REQUIRE_FALSE(parsed.has_wildcards());
  CHECK(parsed.matches(parsed.name()));
  return parsed.name();
}

}  // namespace

TEST_CASE("a pattern without wildcards is a name") {
  CHECK(literal("layers.0.weight") == "layers.0.weight");
  CHECK(literal("größe") == "größe");
  CHECK_FALSE(matches("layers.0", "layers.0.weight"));
  CHECK_FALSE(matches("layers.0.weight", "layers.0"));
  CHECK_FALSE(matches("a", ""));
}

TEST_CASE("an asterisk stands for any bytes, also none and dots") {
  CHECK(matches("*", ""));
  CHECK(matches("*.weight", "layers.0.weight"));
  CHECK(matches("layers.*.w?.*", "layers.10.wq.weight"));
  CHECK(matches("a*b*c", "aXbbYc"));
  CHECK(matches("**a**", "a"));
  CHECK_FALSE(matches("*.weight", "layers.0.weights"));
  CHECK_FALSE(matches("a*b*c", "aXcYb"));
  CHECK_FALSE(matches("*a", ""));
}

TEST_CASE("a question mark stands for one byte") {
  CHECK(matches("layers.?", "layers.7"));
  CHECK_FALSE(matches("layers.?", "layers."));
  CHECK_FALSE(matches("layers.?", "layers.10"));
}

TEST_CASE("brackets stand for one of a set") {
  CHECK(matches("layers.[01].*", "layers.1.w"));
  CHECK_FALSE(matches("layers.[01].*", "layers.2.w"));
  CHECK(matches("[a-cx]", "b"));
  CHECK(matches("[a-cx]", "x"));
  CHECK_FALSE(matches("[a-cx]", "d"));
  CHECK(matches("[!a-c]", "d"));
  CHECK(matches("[^a-c]", "d"));
  CHECK_FALSE(matches("[!a-c]", "b"));
  CHECK(matches("[]]", "]"));
  CHECK(matches("[a-]", "-"));
  CHECK(matches("[\\]]", "]"));
  CHECK(matches("[\\x00-\\xFF]", "\xFF"));
  CHECK_FALSE(matches("[c-a]", "b"));
  CHECK_FALSE(matches("[a]", ""));
}

TEST_CASE("a bracket that is not closed is itself") {
  CHECK(literal("a[0") == "a[0");
  CHECK(literal("[") == "[");
  CHECK(literal("[]") == "[]");
  CHECK(literal("[!") == "[!");
  CHECK(literal("[][") == "[][");
  CHECK(matches("[ab][", "b["));
  const std::string many(1 << 20, '[');
  CHECK(literal(many) == many);
}

TEST_CASE("a backslash takes away what a character means, or names a byte") {
  CHECK(literal("\\*\\?\\[\\\\\\#") == "*?[\\#");
  CHECK(literal("a\\x0Ab\\x5c\\xfF") == "a\nb\\\xFF");
  CHECK(literal(std::string_view("\\x00")) == std::string(1, '\0'));
  CHECK(literal("\\x2A") == "*");
  CHECK(literal("\\xg1\\x1") == "xg1x1");
  CHECK_FALSE(matches("\\*", "a"));
}

TEST_CASE("a backslash at the end is nothing") {
  CHECK(literal("\\") == "");
  CHECK(literal("a\\") == "a");
  CHECK(literal("") == "");
  CHECK(matches("*\\", "abc"));
}

TEST_CASE("many asterisks take no longer than the product of both lengths") {
  std::string pattern;
  for (int i = 0; i < 64; ++i) pattern += "*a";
  CHECK_FALSE(matches(pattern + "b", std::string(20000, 'a')));
  CHECK(matches(pattern, std::string(20000, 'a')));
}
