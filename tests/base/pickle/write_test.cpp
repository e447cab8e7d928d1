// Trees written as pickles: literal bytes, which are those of CPython's pickle.dumps(value, 2)
// where nothing else is said, and the pickles of torch.save, which come out as they went in.
#include "runtime/base/pickle/write.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <memory_resource>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/pickle/parse.hpp"
#include "runtime/base/value/builder.hpp"
#include "runtime/base/zip/directory.hpp"
#include "runtime/base/zip/record_bytes.hpp"
#include "tests/support/texts.hpp"

using namespace weightmap;
using namespace std::string_literals;
using value::Builder;
using value::Cell;
using Kind = Value::Kind;
using test::bytes_of;
using test::text_of;

namespace {

using Tree = std::unique_ptr<value::Tree>;
using Make = std::function<Cell(Builder&)>;

Tree built(const Make& make) {
  Builder build(*std::pmr::new_delete_resource(), {std::uint64_t{256} << 20, 65535});
  const Cell root = make(build);
  return std::move(build).finish(root).value();
}

Value root_of(const Tree& tree) { return {tree.get(), tree->root()}; }

std::string written(const Value& root, const pickle::WriteOptions& options = {}) {
  const auto bytes = pickle::write(root, options);
  REQUIRE_MESSAGE(bytes.has_value(), (bytes ? "" : bytes.error().message));
  return text_of(*bytes);
}
// What stands between PROTO and STOP.
std::string body(const Make& make) {
  const std::string text = written(root_of(built(make)));
  REQUIRE(text.substr(0, 2) == "\x80\x02");
  REQUIRE(text.back() == '.');
  return text.substr(2, text.size() - 3);
}

Error refused(const Value& root, const pickle::WriteOptions& options = {}) {
  const auto bytes = pickle::write(root, options);
  REQUIRE(!bytes.has_value());
  return bytes.error();
}
Error refused(const Make& make) { return refused(root_of(built(make))); }

Tree parsed(const std::string& pickle) {
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  bytes::Buffer copy(pickle.size(), memory);
  std::memcpy(copy.data(), pickle.data(), pickle.size());
  const std::span<const std::byte> view = copy.span();
  return pickle::parse(std::move(copy), view, 0, {std::uint64_t{256} << 20, 1000}, memory).value();
}

// Of protocol 2, without PROTO and STOP.
Tree parsed_body(const std::string& body) { return parsed("\x80\x02" + body + "."); }

std::vector<Cell> nones(std::size_t count) { return std::vector<Cell>(count); }

// The bytes of the record data.pkl; empty if the file has none that can be read.
std::string pickle_in(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  const bytes::MemorySource source(bytes_of(content));
  bytes::ReadCache cache(source, *std::pmr::new_delete_resource());
  const Result<zip::Directory> directory = zip::Directory::read(cache, std::uint64_t{1} << 20);
  if (!directory) return {};
  const zip::Record* record = directory->find("data.pkl");
  if (record == nullptr) return {};
  const Result<zip::RecordBytes> pickle =
      zip::read_record(*directory, *record, cache, std::uint64_t{1} << 20);
  return pickle ? text_of(pickle->bytes) : std::string();
}

// A list of packed calls with these storage keys, all for one shape.
Cell packed_calls(Builder& build, const std::vector<std::string>& keys) {
  const Cell callable = build.global("torch._utils", "_rebuild_tensor_v2");
  const value::PackedHeader* const header =
      build.packed_header({.ids = {},
                           .callable = callable,
                           .tag = build.string("storage"),
                           .type = build.global("torch", "FloatStorage"),
                           .location = build.string("cpu"),
                           .hooks_callable = build.global("collections", "OrderedDict"),
                           .extra = {}});
  const std::array<std::int64_t, 1> dims{1};
  std::vector<Cell> calls;
  for (const std::string& key : keys)
    calls.push_back(build.packed({header, build.string(key), 1, 0, dims, dims, false}).value());
  return build.list(calls);
}

}  // namespace

TEST_CASE("packed calls that were built are written as they are read") {
  // A hundred, of which most repeat the bytes of an earlier one; and keys of all lengths.
  std::vector<std::string> keys(100, "7");
  for (std::size_t i = 0; i < 100; ++i) keys.push_back(std::string(i, '1'));
  const auto make = [&](Builder& build) { return packed_calls(build, keys); };
  const std::string pickle = written(root_of(built(make)));
  const Tree again = parsed(pickle);
  CHECK(again->packed_count() > 100);
  CHECK((written(root_of(again)) == pickle));
}

TEST_CASE("refuses the key of a packed call that is not UTF-8, also after others") {
  for (const std::size_t before : {0u, 100u}) {
    std::vector<std::string> keys(before, "0");
    keys.push_back("1\xff");
    const Error error = refused([&](Builder& build) { return packed_calls(build, keys); });
    CHECK(error.code == ErrorCode::invalid_argument);
    CHECK(error.message == "the text \"1\\xFF\" is not UTF-8 at its byte 1, so no string holds it");
  }
}

TEST_CASE("packed calls fit the limit just so or are refused") {
  std::vector<std::string> keys;
  for (int i = 0; i < 200; ++i) keys.push_back(std::to_string(i));
  const Tree tree = built([&](Builder& build) { return packed_calls(build, keys); });
  const std::uint64_t length = written(root_of(tree)).size();
  CHECK(written(root_of(tree), {.max_bytes = length}).size() == length);
  for (const std::uint64_t less : {length - 1, length - 50, length / 2}) {
    const Error error = refused(root_of(tree), {.max_bytes = less});
    CHECK(error.code == ErrorCode::limit_exceeded);
    CHECK(error.message == "the pickle would be longer than " + std::to_string(less) + " bytes");
  }
}

TEST_CASE("every pickle of torch.save comes out as it went in") {
  // Other protocols, and the pickler of TorchScript, which writes other opcodes.
  const std::set<std::string> others{"protocol1.pt", "protocol3.pt",   "protocol4.pt",
                                     "protocol5.pt", "torchscript.pt", "scripted.pt"};
  std::size_t same = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEIGHTMAP_TEST_DATA)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file()) continue;
    const std::string pickle = pickle_in(entry.path());
    if (pickle.empty()) continue;
    INFO(name);
    const bool is_same = written(root_of(parsed(pickle))) == pickle;
    CHECK(is_same != others.contains(name));
    same += is_same;
  }
  CHECK(same == 40);
}

TEST_CASE("what was of another protocol comes out as it went in from then on") {
  for (const std::string name : {"protocol1.pt", "protocol3.pt", "protocol4.pt", "protocol5.pt",
                                 "torchscript.pt", "scripted.pt"}) {
    INFO(name);
    const std::string pickle = pickle_in(std::filesystem::path(WEIGHTMAP_TEST_DATA) / name);
    const std::string once = written(root_of(parsed(pickle)));
    CHECK((written(root_of(parsed(once))) == once));
  }
}

TEST_CASE("writes None, booleans and floats") {
  CHECK(body([](Builder& build) { return build.none(); }) == "N");
  CHECK(body([](Builder& build) { return build.boolean(true); }) == "\x88");
  CHECK(body([](Builder& build) { return build.boolean(false); }) == "\x89");
  CHECK(body([](Builder& build) { return build.real(0.5); }) == "G\x3f\xe0\0\0\0\0\0\0"s);
  CHECK(body([](Builder& build) { return build.real(-1.5e300); }) ==
        "G\xfe\x41\xeb\x2d\x66\x00\x58\x35"s);
}

TEST_CASE("writes each integer in the shortest form") {
  constexpr std::int64_t least = INT64_MIN;
  const std::map<std::int64_t, std::string> integers{
      {0, "K\0"s},
      {-1, "J\xff\xff\xff\xff"},
      {255, "K\xff"},
      {256, "M\0\x01"s},
      {65535, "M\xff\xff"},
      {65536, "J\0\0\x01\0"s},
      {2147483647, "J\xff\xff\xff\x7f"},
      {2147483648, "\x8a\x05\0\0\0\x80\0"s},
      {-2147483648, "J\0\0\0\x80"s},
      {-2147483649, "\x8a\x05\xff\xff\xff\x7f\xff"},
      {549755813887, "\x8a\x05\xff\xff\xff\xff\x7f"},
      {549755813888, "\x8a\x06\0\0\0\0\x80\0"s},
      {-549755813888, "\x8a\x05\0\0\0\0\x80"s},
      {-549755813889, "\x8a\x06\xff\xff\xff\xff\x7f\xff"},
      {INT64_MAX, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"},
      {least, "\x8a\x08\0\0\0\0\0\0\0\x80"s},
  };
  for (const auto& expected : integers) {
    INFO(expected.first);
    CHECK(body([&](Builder& build) { return build.integer(expected.first); }) == expected.second);
  }
}

TEST_CASE("writes integers of more than 64 bits without digits that only repeat the sign") {
  const std::string nines(8, '\xff');
  const std::string zeros(8, '\0');
  const std::map<std::string, std::string> integers{
      {zeros + "\x01", "\x8a\x09" + zeros + "\x01"},
      {zeros + "\x80", "\x8a\x09" + zeros + "\x80"},
      {nines + '\0', "\x8a\x09" + nines + '\0'},
      {nines + "\x7f" + '\0', "\x8a\x09" + nines + "\x7f"},
      {zeros + "\x80\xff\xff", "\x8a\x09" + zeros + "\x80"},
      {"\x05" + zeros, "K\x05"},
      {nines + "\xff", "J\xff\xff\xff\xff"},
      {std::string(254, '\xff') + '\0', "\x8a\xff" + std::string(254, '\xff') + '\0'},
      {std::string(255, '\xff') + '\0', "\x8b\0\x01\0\0"s + std::string(255, '\xff') + '\0'},
  };
  for (const auto& [digits, expected] : integers)
    CHECK(body([&, digits = digits](Builder& build) {
            return build.big_integer(bytes_of(digits));
          }) == expected);
}

TEST_CASE("writes strings, with lone surrogates") {
  CHECK(body([](Builder& build) { return build.string(""); }) == "X\0\0\0\0q\0"s);
  CHECK(body([](Builder& build) { return build.string("h\xc3\xa9"); }) ==
        "X\x03\0\0\0h\xc3\xa9q\0"s);
  CHECK(body([](Builder& build) { return build.string("12345678\xed\xa0\x80"); }) ==
        "X\x0b\0\0\0"s + "12345678\xed\xa0\x80q" + '\0');
}

TEST_CASE(
    "writes bytes as a call that encodes a text, empty ones as torch reads them, unlike CPython") {
  CHECK(body([](Builder& build) { return build.bytes(bytes_of("ab\xff")); }) ==
        "c_codecs\nencode\nq\0X\x04\0\0\0ab\xc3\xbfq\x01X\x06\0\0\0latin1q\x02\x86q\x03Rq\x04"s);
  CHECK(body([](Builder& build) { return build.bytes({}); }) ==
        "c_codecs\nencode\nq\0X\0\0\0\0q\x01X\x06\0\0\0latin1q\x02\x86q\x03Rq\x04"s);
}

TEST_CASE("writes byte arrays as a call with bytes") {
  CHECK(body([](Builder& build) { return build.byte_array({}); }) ==
        "c__builtin__\nbytearray\nq\0)Rq\x01"s);
  CHECK(body([](Builder& build) { return build.byte_array(bytes_of("ab")); }) ==
        "c__builtin__\nbytearray\nq\0c_codecs\nencode\nq\x01X\x02\0\0\0abq\x02"
        "X\x06\0\0\0latin1q\x03\x86q\x04Rq\x05\x85q\x06Rq\x07"s);
}

TEST_CASE("writes sets as calls with a list") {
  const std::array three{value::make_integer(3)};
  CHECK(body([&](Builder& build) { return build.set(three); }) ==
        "c__builtin__\nset\nq\0]q\x01K\x03"
        "a\x85q\x02Rq\x03"s);
  CHECK(body([&](Builder& build) { return build.set({}); }) ==
        "c__builtin__\nset\nq\0]q\x01\x85q\x02Rq\x03"s);
  CHECK(body([&](Builder& build) { return build.frozen_set(three); }) ==
        "c__builtin__\nfrozenset\nq\0]q\x01K\x03"
        "a\x85q\x02Rq\x03"s);
}

TEST_CASE("writes the names that bytes and sets need once") {
  CHECK(body([](Builder& build) {
          const Cell three = build.integer(3);
          const Cell four = build.integer(4);
          return build.list(std::array{build.bytes(bytes_of("ab")), build.bytes(bytes_of("cd")),
                                       build.byte_array(bytes_of("xy")), build.set({&three, 1}),
                                       build.set({&four, 1})});
        }) ==
        "]q\0(c_codecs\nencode\nq\x01X\x02\0\0\0abq\x02X\x06\0\0\0latin1q\x03\x86q\x04Rq\x05"
        "h\x01X\x02\0\0\0cdq\x06h\x03\x86q\x07Rq\x08"
        "c__builtin__\nbytearray\nq\x09h\x01X\x02\0\0\0xyq\x0ah\x03\x86q\x0bRq\x0c\x85q\rRq\x0e"
        "c__builtin__\nset\nq\x0f]q\x10K\x03"
        "a\x85q\x11Rq\x12h\x0f]q\x13K\x04"
        "a\x85q\x14Rq\x15"
        "e"s);
}

TEST_CASE("writes tuples of each length") {
  CHECK(body([](Builder& build) { return build.tuple({}); }) == ")");
  CHECK(body([](Builder& build) { return build.tuple(nones(1)); }) == "N\x85q\0"s);
  CHECK(body([](Builder& build) { return build.tuple(nones(2)); }) == "NN\x86q\0"s);
  CHECK(body([](Builder& build) { return build.tuple(nones(3)); }) == "NNN\x87q\0"s);
  CHECK(body([](Builder& build) { return build.tuple(nones(4)); }) == "(NNNNtq\0"s);
}

TEST_CASE("writes lists, dicts and objects in batches of 1000") {
  const auto list_of = [](std::size_t count) {
    return body([&](Builder& build) { return build.list(nones(count)); });
  };
  CHECK(list_of(0) == "]q\0"s);
  CHECK(list_of(1) == "]q\0Na"s);
  CHECK(list_of(2) == "]q\0(NNe"s);
  CHECK(list_of(1000) == "]q\0("s + std::string(1000, 'N') + "e");
  CHECK(list_of(1001) == "]q\0("s + std::string(1000, 'N') + "e(Ne");
  CHECK(list_of(2001) ==
        "]q\0("s + std::string(1000, 'N') + "e(" + std::string(1000, 'N') + "e(Ne");

  const auto dict_of = [](std::size_t count) {
    return body([&](Builder& build) { return build.dict(nones(2 * count)); });
  };
  CHECK(dict_of(0) == "}q\0"s);
  CHECK(dict_of(1) == "}q\0NNs"s);
  CHECK(dict_of(2) == "}q\0(NNNNu"s);
  CHECK(dict_of(999) == "}q\0("s + std::string(1998, 'N') + "u");
  CHECK(dict_of(1000) == "}q\0("s + std::string(2000, 'N') + "u(u");
  CHECK(dict_of(1001) == "}q\0("s + std::string(2000, 'N') + "u(NNu");

  const auto object_of = [](std::size_t elements, std::size_t items) {
    return body([&](Builder& build) {
      return build.object({.callable = build.global("m", "C"),
                           .arguments = build.tuple({}),
                           .elements = nones(elements),
                           .items = nones(2 * items)});
    });
  };
  const std::string call = "cm\nC\nq\0)Rq\x01"s;
  CHECK(object_of(0, 0) == call);
  CHECK(object_of(1, 1) == call + "NaNNs");
  CHECK(object_of(1000, 1000) ==
        call + "(" + std::string(1000, 'N') + "e(" + std::string(2000, 'N') + "u");
  CHECK(object_of(1001, 1001) ==
        call + "(" + std::string(1000, 'N') + "eNa(" + std::string(2000, 'N') + "uNNs");
}

TEST_CASE("writes what an object is called with, then its elements, items and state") {
  for (const bool is_new : {false, true}) {
    const std::string made = is_new ? "\x81" : "R";
    CHECK(body([&](Builder& build) {
            const std::array elements{build.integer(1)};
            const std::array items{build.string("k"), build.integer(2)};
            return build.object({.callable = build.global("m", "C"),
                                 .arguments = build.tuple(std::array{build.integer(0)}),
                                 .elements = elements,
                                 .items = items,
                                 .state = build.integer(3),
                                 .is_new_object = is_new});
          }) ==
          "cm\nC\nq\0K\0\x85q\x01"s + made + "q\x02K\x01" + "aX\x01\0\0\0kq\x03K\x02sK\x03"s + "b");
  }
}

TEST_CASE("writes None as a state where there is one") {
  CHECK(body([](Builder& build) {
          return build.object({.callable = build.global("m", "C"),
                               .arguments = build.tuple({}),
                               .state = build.none()});
        }) == "cm\nC\nq\0)Rq\x01Nb"s);
}

TEST_CASE("writes an object that stands for getattr as what is called") {
  CHECK(body([](Builder& build) {
          const std::array named{build.global("m", "A"), build.string("B")};
          const Cell inner = build.object({.callable = build.global("__builtin__", "getattr"),
                                           .arguments = build.tuple(named)});
          return build.object({.callable = inner, .arguments = build.tuple({})});
        }) == "c__builtin__\ngetattr\nq\0cm\nA\nq\x01X\x01\0\0\0Bq\x02\x86q\x03Rq\x04)Rq\x05"s);
}

TEST_CASE("writes the tuple of a persistent id, which has no memo id itself") {
  CHECK(body([](Builder& build) {
          const Cell id = build.tuple(std::array{build.string("s"), build.integer(7)});
          const Cell stored = build.persistent_id(id);
          return build.list(std::array{stored, stored, build.persistent_id(build.string("t"))});
        }) == "]q\0(X\x01\0\0\0sq\x01K\x07\x86q\x02Qh\x02QX\x01\0\0\0tq\x03Qe"s);
}

TEST_CASE("fetches what it has written, by identity") {
  CHECK(body([](Builder& build) {
          const Cell text = build.string("a");
          const Cell pair = build.tuple(std::array{text, text});
          const Cell list = build.list(std::array{pair});
          const Cell dict = build.dict(std::array{text, list});
          const Cell set = build.set(std::array{text});
          const Cell bytes = build.bytes(bytes_of("b"));
          const Cell array = build.byte_array(bytes_of("c"));
          const Cell object =
              build.object({.callable = build.global("m", "C"), .arguments = build.tuple({})});
          const std::array once{text, pair, list, dict, set, bytes, array, object};
          return build.tuple(std::array{build.tuple(once), build.list(once)});
        }) == "(X\x01\0\0\0aq\0h\0h\0\x86q\x01]q\x02h\x01"s + "a}q\x03h\0h\x02s"s +
                  "c__builtin__\nset\nq\x04]q\x05h\0a\x85q\x06Rq\x07"s +
                  "c_codecs\nencode\nq\x08X\x01\0\0\0bq\x09X\x06\0\0\0latin1q\x0a\x86q\x0bRq\x0c"s +
                  "c__builtin__\nbytearray\nq\rh\x08X\x01\0\0\0cq\x0eh\x0a\x86q\x0fRq\x10\x85q\x11"
                  "Rq\x12"
                  "cm\nC\nq\x13)Rq\x14tq\x15"s +
                  "]q\x16(h\0h\x01h\x02h\x03h\x07h\x0ch\x12h\x14"s + "e\x86q\x17");
}

TEST_CASE("writes equal strings that are two values twice") {
  CHECK(body([](Builder& build) {
          return build.tuple(std::array{build.string("a"), build.string("a")});
        }) == "X\x01\0\0\0aq\0X\x01\0\0\0aq\x01\x86q\x02"s);
}

TEST_CASE("writes one global of two nodes once") {
  CHECK(
      body([](Builder& build) {
        const Cell again = build.global("m", "C");
        return build.list(std::array{build.global("m", "C"), again, build.global("m", "D"), again});
      }) == "]q\0(cm\nC\nq\x01h\x01"s + "cm\nD\nq\x02h\x01" + "e");
}

TEST_CASE("writes memo ids of four bytes from 256 on") {
  const std::string text = body([](Builder& build) {
    std::vector<Cell> strings;
    for (int i = 0; i < 257; ++i) strings.push_back(build.string("s"));
    for (const std::size_t again : {std::size_t{254}, std::size_t{255}})
      strings.push_back(strings[again]);
    return build.list(strings);
  });
  CHECK(
      text.ends_with("X\x01\0\0\0sq\xff"
                     "X\x01\0\0\0sr\0\x01\0\0"
                     "X\x01\0\0\0sr\x01\x01\0\0h\xffj\0\x01\0\0e"s));
}

TEST_CASE("tells nodes of several trees apart, and knows those that it wrote") {
  const Tree first = parsed_body("(cm\nC\nq\0)Rq\x01X\x01\0\0\0aq\x02tq\x03"s);
  const Tree second = built([](Builder& build) {
    return build.tuple(std::array{build.string("a"), build.global("m", "C")});
  });
  const Tree list = parsed_body("](cm\nX\n)Rcm\nY\n)Rcm\nX\n)Re"s);
  const auto replace = [&](const Value& object) -> std::optional<Value> {
    if (object.callable().name() == "X") return root_of(first);
    return object.callable().name() == "Y" ? std::optional(root_of(second)) : std::nullopt;
  };
  CHECK(written(root_of(list), {.replace = replace}) ==
        "\x80\x02]q\0(cm\nC\nq\x01)Rq\x02X\x01\0\0\0aq\x03\x86q\x04"
        "X\x01\0\0\0aq\x05h\x01\x86q\x06h\x04"
        "e."s);
}

TEST_CASE("remembers what an object was replaced by") {
  const Tree instead = built([](Builder& build) { return build.list(nones(1)); });
  const Tree tree = parsed_body("](cm\nC\n)Rq\0h\0cm\nD\n)Re"s);
  int asked = 0;
  const auto replace = [&](const Value& object) -> std::optional<Value> {
    ++asked;
    if (object.callable().name() == "C") return root_of(instead);
    return std::nullopt;
  };
  CHECK(written(root_of(tree), {.replace = replace}) ==
        "\x80\x02]q\0(]q\x01Nah\x01"
        "cm\nD\nq\x02)Rq\x03"
        "e."s);
  CHECK(asked == 2);
}

TEST_CASE("replaces an object by a value that has no memo id wherever it is met") {
  const Tree tree = parsed_body("](cm\nC\n)Rq\0h\0e"s);
  const auto replace = [&](const Value&) -> std::optional<Value> { return Value(); };
  CHECK(written(root_of(tree), {.replace = replace}) == "\x80\x02]q\0(NNe."s);
}

TEST_CASE("asks about the objects within a replacement, not about itself") {
  const Tree instead = parsed_body("cm\nC\ncm\nD\n)R\x85R"s);
  const Tree tree = parsed_body("cm\nC\n)R"s);
  std::string asked;
  const auto replace = [&](const Value& object) -> std::optional<Value> {
    asked += object.callable().name();
    if (asked == "C") return root_of(instead);
    return std::nullopt;
  };
  CHECK(written(root_of(tree), {.replace = replace}) ==
        "\x80\x02"
        "cm\nC\nq\0cm\nD\nq\x01)Rq\x02\x85q\x03Rq\x04."s);
  CHECK(asked == "CD");
}

TEST_CASE("replaces persistent ids, each time, and asks about what is in one that stays") {
  const Tree tree = parsed_body("(K\x01QK\x02QK\x01QK\x03QQt"s);
  const Tree two = parsed_body("K\x09Q"s);
  std::vector<std::int64_t> asked;
  const auto replace = [&](const Value& value) -> std::optional<Value> {
    REQUIRE(value.kind() == Value::Kind::persistent_id);
    asked.push_back(value.persistent_id().integer().value_or(0));
    if (asked.back() == 1) return Value();
    if (asked.back() == 2) return root_of(two);
    return std::nullopt;
  };
  CHECK(written(root_of(tree), {.replace = replace}) == "\x80\x02(NK\x09QNK\x03QQtq\0."s);
  CHECK(asked == std::vector<std::int64_t>{1, 2, 1, 0, 3});
}

TEST_CASE("an object that is replaced by itself is written") {
  const Tree tree = parsed_body("cm\nC\n)R"s);
  const auto replace = [](const Value& object) { return std::optional(object); };
  CHECK(written(root_of(tree), {.replace = replace}) ==
        "\x80\x02"
        "cm\nC\nq\0)Rq\x01."s);
}

TEST_CASE("writes a tree of any depth") {
  const std::string text = body([](Builder& build) {
    Cell cell = build.none();
    for (int i = 0; i < 60000; ++i)
      cell = i % 2 == 0 ? build.tuple({&cell, 1}) : build.persistent_id(cell);
    return cell;
  });
  CHECK(text.starts_with("N\x85q\0Q\x85q\x01Q"s));
}

TEST_CASE("writes lists, dicts, tuples and objects that hold themselves as CPython does") {
  const std::string c = "cm\nC\nq\0)Rq\x01"s;
  for (const std::string& pickle : {
           "\x80\x02]q\0h\0a."s,
           "\x80\x02}q\0K\x01h\0s."s,
           "\x80\x02]q\0h\0\x85q\x01"s + "a."s,
           "\x80\x02"s + c + "h\x01"s + "a."s,
           "\x80\x02"s + c + "K\x01h\x01s."s,
           "\x80\x02"s + c + "h\x01"s + "b."s,
           "\x80\x02"s + c + "}q\x02(X\x06\0\0\0parentq\x03h\x01X\x01\0\0\0lq\x04]q\x05h\x02"s +
               "aub."s,
       })
    CHECK(written(root_of(parsed(pickle))) == pickle);
  // Tuples first: written by what they hold, thrown away and fetched.
  CHECK(written(root_of(parsed("\x80\x02]q\0h\0\x85q\x01"s + "a."s))[0]) ==
        "\x80\x02]q\0h\0\x85q\x01"s + "a0h\x01."s);
  CHECK(written(root_of(parsed("\x80\x02]q\0(h\0K\x01K\x02K\x03tq\x01"s + "a."s))[0]) ==
        "\x80\x02(]q\0(h\0K\x01K\x02K\x03tq\x01"s + "aK\x01K\x02K\x03"s + "1h\x01."s);
}

TEST_CASE("refuses what holds itself in what it is made of") {
  for (const auto& [kind, pickle] :
       {std::pair{"set"s, "\x80\x04\x8fq\0(h\0\x85\x90."s},
        {"object"s, "\x80\x02"s + "cm\nC\n]q\0\x85Rq\x01h\0h\x01"s + "a0."s}}) {
    const std::string& row = kind;
    INFO(row);
    const Error error = refused(root_of(parsed(pickle)));
    CHECK(error.code == ErrorCode::invalid_argument);
    CHECK(error.message == "the value refers to itself: a value of kind " + kind +
                               " holds itself in what it is made of, directly or further down");
  }
}

TEST_CASE("refuses tuples that would be written again and again") {
  // A tuple of lists, each of which holds it.
  const Error error = refused([](Builder& build) {
    std::vector<Cell> lists(4000);
    for (Cell& list : lists) list = build.list({});
    const Cell all = build.tuple(lists);
    for (const Cell& list : lists) build.fill(list, {.elements = std::span(&all, 1)});
    return all;
  });
  CHECK(error.message.starts_with("the value refers to itself: a value of kind tuple"));
}

TEST_CASE("refuses an object that is replaced by what holds it") {
  const Tree tree = parsed_body("cm\nC\n)R\x85"s);
  const auto replace = [&](const Value&) { return std::optional(root_of(tree)); };
  CHECK(refused(root_of(tree)[0], {.replace = replace}).message ==
        "the value refers to itself: a value of kind object holds itself in what it is made of, "
        "directly or further down");
}

TEST_CASE("refuses texts and names that protocol 2 cannot write") {
  const struct {
    const char* name;
    Make make;
    const char* message;
  } rows[] = {
      {"a string that is not UTF-8", [](Builder& build) { return build.string("0123456789\xe9x"); },
       "the text \"0123456789\\xE9x\" is not UTF-8 at its byte 10, so no string holds it"},
      {"a global whose name has a line break",
       [](Builder& build) { return build.global("m", "a\nb"); },
       "the global \"a\\x0Ab\" of module \"m\" has a line break or is not UTF-8, so protocol 2 "
       "cannot name it"},
      {"a global whose module is not UTF-8",
       [](Builder& build) { return build.global("\xff", "a"); },
       "the global \"a\" of module \"\\xFF\" has a line break or is not UTF-8, so protocol 2 "
       "cannot name it"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.name);
    const Error error = refused(row.make);
    CHECK(error.code == ErrorCode::invalid_argument);
    CHECK(error.message == row.message);
  }
}

TEST_CASE("refuses a pickle that is longer than it may be") {
  const Tree tree = built([](Builder& build) { return build.string(std::string(1000, 's')); });
  CHECK(written(root_of(tree), {.max_bytes = 1010}).size() == 1010);
  for (const std::uint64_t most : {1009u, 100u, 0u}) {
    const Error error = refused(root_of(tree), {.max_bytes = most});
    CHECK(error.code == ErrorCode::limit_exceeded);
    CHECK(error.message == "the pickle would be longer than " + std::to_string(most) + " bytes");
  }
}

TEST_CASE("refuses an integer of 2 GiB") {
  constexpr std::size_t size = std::size_t{1} << 31;
  // Pages of zeros that nobody reads but for the last one.
  const std::unique_ptr<void, decltype(&std::free)> digits(std::calloc(size, 1), std::free);
  REQUIRE(digits != nullptr);
  auto* const first = static_cast<std::byte*>(digits.get());
  first[size - 1] = std::byte{1};
  const value::Tree tree(bytes::Buffer(), {first, size}, *std::pmr::new_delete_resource(), 64, 0);
  const Error error =
      refused({&tree, value::make_cell(Kind::big_integer, std::uint64_t{0}, 0x80000000)});
  CHECK(error.code == ErrorCode::limit_exceeded);
  CHECK(error.message == "an integer of 2147483648 bytes is longer than protocol 2 can write");
}
