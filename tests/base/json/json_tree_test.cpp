// JSON as a value tree, and what is refused.
#include "runtime/base/json/json_tree.hpp"

#include <doctest/doctest.h>

#include <memory_resource>
#include <string>

#include "tests/support/failures.hpp"

using namespace weightmap;
using namespace std::string_literals;

namespace {

struct Document {
  explicit Document(const std::string& text, value::BuildLimits limits = {1 << 20, 100}) {
    value::Builder build(*std::pmr::new_delete_resource(), limits);
    Result<value::Cell> cell = json::add_document(build, text);
    if (!cell) {
      error = cell.error();
      return;
    }
    tree = std::move(build).finish(*cell).value();
  }
  Value root() const { return {tree.get(), tree->root()}; }
  std::unique_ptr<value::Tree> tree;
  Error error;
};

Error refused(const std::string& text, value::BuildLimits limits = {1 << 20, 100}) {
  const Document document(text, limits);
  REQUIRE(document.tree == nullptr);
  return document.error;
}

}  // namespace

TEST_CASE("reads objects, arrays and each kind of value") {
  const Document document(R"( {"a": [1, -2, 2.5, true, null, "x\u00e9\n"], "b": {"c": {}}} )");
  REQUIRE(document.tree != nullptr);
  const Value list = document.root().find("a").value();
  CHECK(list[0].integer() == 1);
  CHECK(list[1].integer() == -2);
  CHECK(list[2].real() == 2.5);
  CHECK(list[3].boolean() == true);
  CHECK(list[4].is_none());
  CHECK(list[5].string() == "x\xc3\xa9\n");
  CHECK(document.root().find("b")->find("c")->kind() == Value::Kind::dict);
}

TEST_CASE("says where a key comes again, a number is too large and a container too deep") {
  const std::string deep = "[1, " + std::string(63, '[') + " {}";
  for (const auto& [text, wrong] :
       {std::pair{R"({"a": 1, "b": 2, "\u0061": 3})"s, 17u},
        {R"({"b": {"a": ["a", {"a": 1}], "x\"": "a"} , "b" : 1, "b": 2})"s, 43},
        {R"([{}, {"a": "b", "b": "a", "c\\": {}, "d": [], "c\\": 1}])"s, 46},
        {R"({"z": 1, "z": 2, "a": 3, "a": 4})"s, 9},
        {"9223372036854775808"s, 0},
        {"[1, 9223372036854775808]"s, 4},
        {"{\"a\": 9223372036854775808}"s, 6},
        {"[1e3 , 1e400]"s, 7},
        {deep, 68}}) {
    const std::string& document = text;
    CAPTURE(document);
    const Error error = refused(document);
    CHECK(error.code == ErrorCode::corrupt);
    CHECK(error.message != "is not JSON");
    CHECK(error.file_offset == wrong);
  }
  CHECK(refused(R"({"a": 1, "\u0061": 3})").message == "an object has the key \"a\" twice");
  CHECK(refused("-1e400").message == "a number does not fit a double");
}

TEST_CASE("keeps the order of many keys and finds the one that comes again") {
  std::string text = "{";
  for (int i = 1000; i > 0; --i) text += '"' + std::to_string(i) + "\":" + std::to_string(i) + ",";
  const Document document(text + "\"0\":0}");
  REQUIRE(document.tree != nullptr);
  CHECK(document.root().item_count() == 1001);
  std::int64_t expected = 1000;
  for (const auto& [key, item] : document.root().items()) {
    CHECK(key.string() == std::to_string(expected));
    CHECK(item.integer() == expected--);
  }
  CHECK(refused(text + "\"777\":0}").message == "an object has the key \"777\" twice");
}

TEST_CASE("keeps within the memory of its builder") {
  std::string text = "[0";
  for (int i = 0; i < 10000; ++i) text += ",0";
  const Error error = refused(text + "]", {1 << 14, 100});
  CHECK(error.code == ErrorCode::limit_exceeded);
}
