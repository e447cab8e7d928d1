// Calls in a checkpoint that are no tensors: what no reader could make, and what is kept.
#include <doctest/doctest.h>

#include <span>
#include <string>

#include "tests/support/archive_builder.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/torch/pickle_text.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {
namespace {

using test::dict;
using test::global;
using test::Tensor;
using test::unicode;
using namespace std::string_literals;

Result<Checkpoint> open_with(const std::string& value) {
  const test::TemporaryFolder folder;
  const test::Bytes archive = test::archive_of(
      "\x80\x02" + dict({{unicode("w"), Tensor().text()}, {unicode("v"), value}}) + ".",
      {std::string(64, '\0')});
  return Checkpoint::open(folder.write("model.pt", std::span<const std::byte>(archive)));
}

void refuses(const std::string& value, const std::string& words) {
  const Result<Checkpoint> opened = open_with(value);
  REQUIRE(!opened.has_value());
  CHECK(opened.error().code == ErrorCode::corrupt);
  CHECK_MESSAGE(opened.error().message.find(words) != std::string::npos, opened.error().message);
  CHECK(opened.error().file_offset != Error::no_offset);
}

void keeps(const std::string& value) {
  const Result<Checkpoint> opened = open_with(value);
  REQUIRE_OK(opened);
  CHECK(opened->root().find("v")->kind() == Value::Kind::object);
}

std::string call(const std::string& module, const std::string& name, const std::string& arguments) {
  return global(module, name) + "(" + arguments + "tR";
}

const std::string words = " with arguments that it cannot take";

}  // namespace

TEST_CASE("refuses a dtype that is called") {
  refuses(call("torch", "float32", ""), "torch.float32, which is a dtype and cannot be called");
  refuses(global("torch", "int64") + ")\x81", "torch.int64, which is a dtype");
}

TEST_CASE("refuses an OrderedDict of a number") {
  refuses(call("collections", "OrderedDict", "K\x01"), "collections.OrderedDict" + words);
  refuses(call("collections", "OrderedDict", "N"), words);
  refuses(call("collections", "OrderedDict", "]]"), words);
  keeps(call("collections", "OrderedDict", "]"));
  keeps(global("collections", "OrderedDict") + "K\x01\x85\x81");  // __new__ takes it
}

TEST_CASE("refuses a Counter of a number") {
  refuses(call("collections", "Counter", "G\x40\0\0\0\0\0\0\0"s), "collections.Counter" + words);
  keeps(call("collections", "Counter", "N"));
  keeps(call("collections", "Counter", "}"));
}

TEST_CASE("refuses a set of a number or of what has no hash") {
  for (const char* module : {"builtins", "__builtin__"})
    for (const char* name : {"set", "frozenset"}) {
      refuses(call(module, name, "K\x05"), module + "."s + name + words);
      refuses(call(module, name, "]]a"), words);
      refuses(call(module, name, "}\x85"), words);
      refuses(call(module, name, "]]"), words);
      keeps(call(module, name,
                 "]K\x01"
                 "a"));
      keeps(call(module, name, ""));
    }
  // The list is changed behind the call, so only Python could tell what it would have been.
  keeps(
      "]q\x01"
      "0" +
      call("builtins", "set", "h\x01") + "h\x01]a0");
}

TEST_CASE("refuses a torch.Size of text") {
  refuses(call("torch", "Size", unicode("abc")), "torch.Size" + words);
  refuses(call("torch", "Size", unicode("abc") + "\x85"), words);
  refuses(call("torch", "Size", "K\x02"), words);
  refuses(call("torch", "Size", "K\x02G\x40\0\0\0\0\0\0\0\x86"s), words);
  refuses(call("torch", "Size", "K\x02K\x03"), words);
  keeps(call("torch", "Size", "K\x02K\x03\x86"));
  keeps(call("torch", "Size", ""));
}

TEST_CASE("refuses a bytearray of nothing, but keeps one of any length without making it") {
  refuses(call("builtins", "bytearray", "N"), "builtins.bytearray" + words);
  refuses(call("builtins", "bytearray", unicode("abc")), words);
  refuses(call("__builtin__", "bytearray", "G\x40\0\0\0\0\0\0\0"s), words);
  keeps(call("builtins", "bytearray", "\x8a\x06\x00\x10\xa5\xd4\xe8\x00"s));  // 10^12
  keeps(call("builtins", "bytearray", unicode("abc") + unicode("latin-1")));
}

TEST_CASE("keeps calls of what is not known") {
  keeps(call("my", "OrderedDict", "K\x01"));
  keeps(call("builtins", "complex", "N"));
  keeps(call("datetime", "date", "N"));
}

}  // namespace weightmap
