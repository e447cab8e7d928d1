// Calls in a checkpoint that are no tensors, and are kept. Those that no reader could make are in
// tests/hostile/pickle_cases.py.
#include <doctest/doctest.h>

#include <string>

#include "tests/formats/torch/pickle_text.hpp"
#include "tests/support/failures.hpp"

namespace weightmap {
namespace {

using namespace test;
using namespace std::string_literals;

Result<Checkpoint> open_with(const std::string& value) {
  return test::open_pickle(
      "\x80\x02" + dict({{unicode("w"), Tensor().text()}, {unicode("v"), value}}) + ".",
      {std::string(64, '\0')});
}

void keeps(const std::string& value) {
  const Checkpoint opened = open_with(value).value();
  CHECK(opened.root().find("v")->kind() == Value::Kind::object);
}

std::string call(const std::string& module, const std::string& name, const std::string& arguments) {
  return global(module, name) + "(" + arguments + "tR";
}

}  // namespace

TEST_CASE("keeps what the types of torch's list take, calling nothing") {
  keeps(call("collections", "OrderedDict", "]"));
  keeps(global("collections", "OrderedDict") + "K\x01\x85\x81");  // __new__ takes it
  keeps(call("collections", "Counter", "N"));
  keeps(call("collections", "Counter", "}"));
  for (const char* module : {"builtins", "__builtin__"})
    for (const char* name : {"set", "frozenset"}) {
      keeps(call(module, name, "]K\x01" + "a"s));
      keeps(call(module, name, ""));
    }
  // The list is changed behind the call, so only Python could tell what it would have been.
  keeps("]q\x01" + "0"s + call("builtins", "set", "h\x01") + "h\x01]a0");
  keeps(call("torch", "Size", "K\x02K\x03\x86"));
  keeps(call("torch", "Size", ""));
  keeps(call("builtins", "bytearray", "\x8a\x06\x00\x10\xa5\xd4\xe8\x00"s));  // 10^12
}

TEST_CASE("bytes that old protocols spell as text are bytes") {
  const Checkpoint opened =
      open_with(call("builtins", "bytearray", unicode("abc") + unicode("latin-1"))).value();
  CHECK(opened.root().find("v")->kind() == Value::Kind::byte_array);
}

TEST_CASE("keeps calls of what is not known") {
  keeps(call("my", "OrderedDict", "K\x01"));
  keeps(call("builtins", "complex", "N"));
  keeps(call("datetime", "date", "N"));
}

}  // namespace weightmap
