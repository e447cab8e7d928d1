// Dicts that hold one key twice: the last value wins, as in Python.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/formats/torch/pickle_text.hpp"
#include "tests/support/failures.hpp"

namespace weightmap {
namespace {

using namespace test;
using namespace std::string_literals;

// One float of its own storage, whose value is the storage's number.
std::string tensor(int number) {
  Tensor made;
  made.key = unicode(std::to_string(number));
  made.numel = integer(1);
  made.sizes = made.strides = tuple({1});
  return made.text();
}

Result<Checkpoint> open(const std::string& value, int storages) {
  std::vector<std::string> contents;
  for (int i = 0; i < storages; ++i) {
    const auto number = static_cast<float>(i);
    contents.emplace_back(reinterpret_cast<const char*>(&number), sizeof number);
  }
  return test::open_pickle("\x80\x02" + value + ".", contents);
}

float value_of(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.find(name);
  REQUIRE_MESSAGE(found.has_value(), name);
  return found->as<float>().value()[0];
}

// Of a dict that has one tensor left, tensor 1.
void takes_last(const std::string& value, const std::string& name, std::uint64_t dropped = 1) {
  const Checkpoint opened = open(value, 2).value();
  CHECK(opened.tensors().size() == 1);
  CHECK(value_of(opened, name) == 1);
  CHECK(opened.info().duplicate_keys == dropped);
}

}  // namespace

TEST_CASE("takes the last of two tensors under one key") {
  takes_last(dict({{unicode("w"), tensor(0)}, {unicode("w"), tensor(1)}}), "w");
  takes_last(global("collections", "OrderedDict") + ")R(" + unicode("w") + tensor(0) +
                 unicode("w") + tensor(1) + "u",
             "w");
  takes_last("}" + unicode("w") + tensor(0) + "s" + unicode("w") + tensor(1) + "s", "w");
}

TEST_CASE("takes the last value, whatever the values are") {
  takes_last(dict({{unicode("w"), "N"}, {unicode("w"), tensor(1)}}), "w");
  const Checkpoint none =
      open(dict({{unicode("w"), tensor(0)}, {unicode("v"), tensor(1)}, {unicode("w"), "N"}}), 2)
          .value();
  CHECK(none.tensors().size() == 1);
  CHECK(none.root().find("w")->is_none());
  takes_last(dict({{unicode("m"), dict({{unicode("a"), tensor(0)}})},
                   {unicode("m"), dict({{unicode("b"), tensor(1)}})}}),
             "m.b");
}

TEST_CASE("keeps the first of the equal keys, in its place") {
  const Result<Checkpoint> opened =
      open(dict({{"K\x01", tensor(0)}, {unicode("x"), tensor(1)}, {"\x88", tensor(2)}}), 3);
  REQUIRE_OK(opened);
  REQUIRE(opened->tensors().size() == 2);
  CHECK(value_of(*opened, "1") == 2);
  CHECK(opened->tensors()[0].name == "1");
  CHECK(opened->root().item_count() == 2);
  CHECK((*opened->root().items().begin()).first.integer() == 1);
}

TEST_CASE("counts every key that is left out, in each dict once") {
  const std::string inner =
      dict({{unicode("w"), "N"}, {unicode("w"), "N"}, {unicode("w"), tensor(1)}});
  takes_last(dict({{unicode("a"), "]"},
                   {unicode("a"), inner},
                   {unicode("p"), dict({{"K\x01", "N"}, {"\x88", "N"}})}}),
             "a.w", 4);
}

TEST_CASE("takes the last of many batches, among many tensors") {
  std::string text = "}";
  constexpr int count = 200;
  for (int batch = 0; batch < 2; ++batch) {
    text += "(";
    for (int i = 0; i < count; ++i)
      text += unicode("t" + std::to_string(i)) + tensor(i + (batch == 1 ? count : 0));
    text += "u";
  }
  const Checkpoint opened = open(text, 2 * count).value();
  CHECK(opened.tensors().size() == count);
  CHECK(opened.info().duplicate_keys == count);
  CHECK(value_of(opened, "t0") == count);
  CHECK(value_of(opened, "t199") == count + 199);
  CHECK(opened.root().item_count() == count);
}

TEST_CASE("goes around a dict that holds itself while it looks for equal keys") {
  takes_last("}q\x01(" + unicode("self") + "h\x01" + unicode("w") + tensor(0) + unicode("w") +
                 tensor(1) + "u",
             "w");
}

}  // namespace weightmap
