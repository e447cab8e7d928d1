// The pickle machine, from byte strings. What it refuses is in tests/hostile/pickle_cases.py and
// opcode_cases.py, but for what takes limits of one's own or all bytes in turn.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <string>
#include <vector>

#include "runtime/base/pickle/parse.hpp"
#include "runtime/base/pickle/pickle_end.hpp"
#include "tests/base/pickle/packing.hpp"
#include "tests/base/pickle/tensor_pickle.hpp"

using namespace weightmap;
using namespace weightmap::test;
using namespace std::string_literals;
using Kind = Value::Kind;

namespace {

constexpr std::uint64_t file_offset = 1000;

Result<std::unique_ptr<value::Tree>> parse(const std::string& text,
                                           pickle::ParseLimits limits = roomy) {
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  bytes::Buffer copy(text.size(), memory);
  if (!text.empty()) std::memcpy(copy.data(), text.data(), text.size());
  const std::span<const std::byte> view = copy.span();
  return pickle::parse(std::move(copy), view, file_offset, limits, memory);
}

// Keeps the tree of a pickle that must parse.
struct Parsed {
  explicit Parsed(const std::string& text) {
    auto result = parse(text);
    REQUIRE_MESSAGE(result.has_value(), (result ? "" : result.error().message));
    tree = std::move(*result);
  }
  Value root() const& { return {tree.get(), tree->root()}; }
  std::unique_ptr<value::Tree> tree;
};

Error refused(const std::string& text, pickle::ParseLimits limits = roomy) {
  const auto result = parse(text, limits);
  REQUIRE(!result.has_value());
  return result.error();
}

bool mentions(const Error& error, std::string_view text) {
  return error.message.find(text) != std::string::npos;
}

// What a tensor's call says, read through the public cursor only.
std::string describe(const Value& value) {
  switch (value.kind()) {
    case Kind::integer:
      return std::to_string(*value.integer());
    case Kind::boolean:
      return *value.boolean() ? "True" : "False";
    case Kind::string:
      return "'" + std::string(*value.string()) + "'";
    case Kind::global:
      return std::string(value.module()) + "." + std::string(value.name());
    case Kind::persistent_id:
      return "pid" + describe(value.persistent_id());
    case Kind::object:
      return describe(value.callable()) + describe(value.arguments());
    case Kind::tuple: {
      std::string text = "(";
      for (const Value& element : value.elements()) text += describe(element) + ",";
      return text + ")";
    }
    default:
      return std::string(to_string(value.kind()));
  }
}

}  // namespace

TEST_CASE("builds every protocol 2 scalar") {
  CHECK(Parsed("N.").root().is_none());
  CHECK(Parsed("\x88.").root().boolean() == true);
  CHECK(Parsed("\x89.").root().boolean() == false);
  CHECK(Parsed("K\xff.").root().integer() == 255);
  CHECK(Parsed("M\xff\xff.").root().integer() == 65535);
  CHECK(Parsed("J\xff\xff\xff\xff.").root().integer() == -1);
  CHECK(Parsed("J"s + u32(0x7FFFFFFF) + ".").root().integer() == 2147483647);
  CHECK(Parsed("\x8a"s + '\0' + ".").root().integer() == 0);
  CHECK(Parsed("\x8a\x01\xfe.").root().integer() == -2);
  CHECK(Parsed("\x8a\x05\x00\x00\x00\x00\x01."s).root().integer() == 4294967296);
  CHECK(Parsed("G\x40\x09\x21\xfb\x54\x44\x2d\x18.").root().real() == doctest::Approx(3.14159265));
  CHECK(Parsed(unicode("h\xc3\xa9") + ".").root().string() == "h\xc3\xa9");
  CHECK(Parsed("U\x02hi.").root().string() == "hi");
}

TEST_CASE("keeps an integer of more than 64 bits as bytes") {
  const Parsed parsed("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."s);
  CHECK(parsed.root().kind() == Kind::big_integer);
  CHECK(parsed.root().big_integer()->size() == 9);
  CHECK((*parsed.root().big_integer())[8] == std::byte{1});
  CHECK(!parsed.root().integer());
}

TEST_CASE("takes a LONG with digits that only repeat the sign for the number that it is") {
  CHECK(Parsed("\x8a\x0a\x07\0\0\0\0\0\0\0\0\0."s).root().integer() == 7);
  CHECK(Parsed("\x8a\x09\xfe\xff\xff\xff\xff\xff\xff\xff\xff."s).root().integer() == -2);
  const Parsed big("\x8a\x0b\0\0\0\0\0\0\0\x80\0\0\0."s);  // 2^63
  REQUIRE(big.root().big_integer());
  CHECK(big.root().big_integer()->size() == 9);
}

TEST_CASE("builds tuples of every length") {
  CHECK(describe(Parsed(").").root()) == "()");
  CHECK(describe(Parsed("K\x01\x85.").root()) == "(1,)");
  CHECK(describe(Parsed("K\x01K\x02\x86.").root()) == "(1,2,)");
  CHECK(describe(Parsed("K\x01K\x02K\x03\x87.").root()) == "(1,2,3,)");
  CHECK(describe(Parsed("(K\x01K\x02K\x03K\x04t.").root()) == "(1,2,3,4,)");
  CHECK(describe(Parsed("(t.").root()) == "()");
}

TEST_CASE("walks lists and dicts over several batches in order") {
  const Parsed list(
      "](K\x01K\x02"
      "eK\x03"
      "a(K\x04"
      "e.");
  CHECK(list.root().size() == 4);
  std::string seen;
  for (const Value& element : list.root().elements()) seen += describe(element);
  CHECK(seen == "1234");
  CHECK(list.root()[2].integer() == 3);
  const Parsed dict("}(" + unicode("a") + "K\x01" + unicode("b") + "K\x02u" + unicode("c") +
                    "K\x03s" + unicode("a") + "K\x09s.");
  CHECK(dict.root().item_count() == 4);
  seen.clear();
  for (const auto& [key, value] : dict.root().items()) seen += describe(key) + describe(value);
  CHECK(seen == "'a'1'b'2'c'3'a'9");
  CHECK(dict.root().find("a")->integer() == 9);
  CHECK(!dict.root().find("z"));
}

TEST_CASE("keeps one list that is reached twice as one") {
  const Parsed parsed("]q"s + '\0' + "h" + '\0' + "\x86.");
  CHECK(parsed.root()[0].is_same_as(parsed.root()[1]));
}

TEST_CASE("keeps calls, classes and states as objects and calls nothing") {
  const Parsed call("cfoo.bar\nBaz\nK\x01\x85R}(" + unicode("x") + "K\x02ub.");
  const Value object = call.root();
  CHECK(object.kind() == Kind::object);
  CHECK(object.callable().module() == "foo.bar");
  CHECK(object.callable().name() == "Baz");
  CHECK(describe(object.arguments()) == "(1,)");
  CHECK(!object.is_new_object());
  CHECK(object.state()->find("x")->integer() == 2);
  CHECK(Parsed("cfoo\nBar\n)\x81.").root().is_new_object());
}

TEST_CASE("gives an OrderedDict its items") {
  const Parsed parsed("ccollections\nOrderedDict\n)R(" + unicode("k") + "K\x05u.");
  CHECK(parsed.root().item_count() == 1);
  CHECK(parsed.root().find("k")->integer() == 5);
}

TEST_CASE("a dict that is called with its items is one that gets them afterwards") {
  const std::string pair = unicode("k") + "K\x05";
  const std::string ordered = "ccollections\nOrderedDict\n";
  const auto has_item = [&](const std::string& call, std::size_t others) {
    const Parsed parsed(call + ".");
    const Value root = parsed.root();
    CHECK(root.kind() == Kind::object);
    CHECK(root.arguments().size() == others);
    REQUIRE(root.item_count() == 1);
    CHECK(root.find("k")->integer() == 5);
  };
  has_item(ordered + "](]q\x07(" + pair + "ee\x85R", 0);  // Python 2: [["k", 5]]
  has_item(ordered + "(" + pair + "\x86t\x85R", 0);       // (("k", 5),)
  has_item(ordered + "}" + pair + "s\x85R", 0);           // {"k": 5}
  has_item("ccollections\nCounter\n}" + pair + "s\x85R", 0);
  has_item("c__builtin__\ndict\n](" + pair + "\x86" + "e\x85R", 0);
  has_item("cbuiltins\ndict\n](" + pair + "\x86" + "e\x85R", 0);
  has_item("ccollections\ndefaultdict\nN](" + pair + "\x86" + "e\x86R", 1);
  has_item("((" + pair + "\x86ticollections\nOrderedDict\n", 0);
}

TEST_CASE("a dict has the items that it was called with, not what became of the list") {
  const std::string list =
                        "]q\x01"
                        "0",
                    again = "h\x01";
  const Parsed parsed(list + "(ccollections\nOrderedDict\n" + again + "\x85R" + again + "K\x02" +
                      "at.");
  const Value dict = parsed.root()[0];
  CHECK(dict.arguments().size() == 0);
  CHECK(dict.item_count() == 0);
  CHECK(parsed.root()[1].size() == 1);
}

TEST_CASE("a call that is not one of a dict with items stays as it is") {
  const auto stays = [](const std::string& module, const std::string& name,
                        const std::string& arguments) {
    const Parsed parsed("c" + module + "\n" + name + "\n(" + arguments + "tR.");
    CHECK(parsed.root().item_count() == 0);
    CHECK(parsed.root().arguments().size() > 0);
  };
  const std::string pairs = "](" + unicode("k") + "K\x05\x86" + "e";
  stays("my", "OrderedDict", pairs);
  stays("collections", "Counter", pairs);  // counts the pairs
  stays("collections", "OrderedDict", pairs + "N");
  stays("collections", "defaultdict", pairs);
  stays("collections", "OrderedDict",
        "](K\x01K\x02"
        "e");
  stays("collections", "OrderedDict",
        "](K\x01K\x02K\x03\x87"
        "e");
  stays("collections", "OrderedDict",
        "](]K\x02\x86"
        "e");  // a list has no hash
}

TEST_CASE("many calls with one list of what is no pair are refused by their cost") {
  std::string text = "](";
  for (int i = 0; i < 1000; ++i) text += "))\x86";
  text +=
      "Neq\x01"
      "0ccollections\nOrderedDict\nq\x02"
      "0";
  for (int i = 0; i < 100000; ++i) text += "h\x02h\x01\x85R0";
  CHECK(refused(text + "N.", {1 << 20, 100}).code == ErrorCode::limit_exceeded);
}

TEST_CASE("reads protocols 4 and 5: frames, memoize, short strings, stack globals, sets, bytes") {
  const Parsed parsed(
      "\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00"
      "\x8f\x94(\x8c\x01"
      "aK\x02\x90h\x00\x86."s);
  CHECK(parsed.root()[0].kind() == Kind::set);
  CHECK(parsed.root()[0].size() == 2);
  CHECK(parsed.root()[0].is_same_as(parsed.root()[1]));
  const Parsed named("\x8c\x05torch\x8c\x05int64\x93.");
  CHECK(named.root().module() == "torch");
  CHECK(named.root().name() == "int64");
  CHECK(Parsed("C\x02\x01\x02.").root().bytes()->size() == 2);
  const Parsed frozen("(K\x01K\x02\x91.");
  CHECK(frozen.root().kind() == Kind::frozen_set);
  CHECK(frozen.root().size() == 2);
  CHECK((*frozen.root().elements().begin()).integer() == 1);
  const Parsed changeable("\x96\x02\x00\x00\x00\x00\x00\x00\x00xy."s);
  CHECK(changeable.root().kind() == Kind::byte_array);
  CHECK(changeable.root().bytes()->size() == 2);
}

TEST_CASE("ignores what lies behind STOP") {
  CHECK(Parsed("K\x07.cos\nsystem\n").root().integer() == 7);
}

TEST_CASE("packs the usual tensors and shows the same tree") {
  TensorPickle pickle;
  for (int i = 0; i < 300; ++i) pickle.add("layer." + std::to_string(i), std::to_string(i));
  const Parsed parsed(pickle.finish());
  CHECK(parsed.tree->packed_count() == 299);
  int index = 0;
  for (const auto& [name, tensor] : parsed.root().items()) {
    const std::string number = std::to_string(index++);
    CHECK(name.string() == "layer." + number);
    CHECK(describe(tensor) == "torch._utils._rebuild_tensor_v2(pid('storage',torch.FloatStorage,'" +
                                  number +
                                  "','cpu',16,),0,(4,4,),(4,1,),False,collections.OrderedDict(),)");
  }
  CHECK(index == 300);
}

TEST_CASE("finds every memo id of a packed tensor") {
  TensorPickle pickle;
  pickle.add("first", "0").add("second", "17");
  // Ids of the second one's pieces, in the order in which a pickler numbers them.
  const std::uint32_t name = pickle.names[1];
  pickle.raw(unicode("pieces") + "(");
  for (std::uint32_t id = name; id <= pickle.tensors[1]; ++id) pickle.raw(pickle.get(id));
  pickle.raw("t");
  const Parsed parsed(pickle.finish());
  REQUIRE(parsed.tree->packed_count() == 1);
  const Value pieces = *parsed.root().find("pieces");
  REQUIRE(pieces.size() == 8);
  CHECK(describe(pieces[0]) == "'second'");
  CHECK(describe(pieces[1]) == "'17'");
  CHECK(describe(pieces[2]) == "('storage',torch.FloatStorage,'17','cpu',16,)");
  CHECK(describe(pieces[3]) == "(4,4,)");
  CHECK(describe(pieces[4]) == "(4,1,)");
  CHECK(describe(pieces[5]) == "collections.OrderedDict()");
  CHECK(pieces[6].size() == 6);
  CHECK(pieces[7].is_same_as(*parsed.root().find("second")));
  CHECK(pieces[5].may_be_shared());
  CHECK(parsed.root().find("second")->arguments().may_be_shared());
}

TEST_CASE("knows that nothing else refers to the pieces of a packed tensor") {
  TensorPickle pickle;
  pickle.add("first", "0").add("second", "1");
  const Parsed parsed(pickle.finish());
  const Value second = *parsed.root().find("second");
  CHECK(second.may_be_shared());
  CHECK(!second.arguments().may_be_shared());
  CHECK(!second.arguments()[0].may_be_shared());
}

TEST_CASE("knows where a call stands and where its result and a list were last changed") {
  const Parsed parsed(
      "]q\x01(cfoo\nBar\nh\x01\x85RK\x05\x62K\x06"
      "e.");
  const Value list = parsed.root();
  const Value call = list[0];
  CHECK(call.position() == 16);
  CHECK(call.changed_at() == 19);
  CHECK(list.changed_at() == 22);
  CHECK(call.arguments()[0].is_same_as(list));
  CHECK(list.position() == 0);
  CHECK(Parsed("].").root().changed_at() == 0);
}

TEST_CASE("packs a tensor whose storage key comes from the memo") {
  TensorPickle pickle;
  pickle.add("first", "0").add("second", "1");
  pickle.add("tied", "", {.key_get = pickle.get(pickle.keys[1])});
  pickle.add("tied to first", "", {.key_get = pickle.get(pickle.keys[0])});
  const Parsed parsed(pickle.finish());
  CHECK(parsed.tree->packed_count() == 3);
  CHECK(parsed.root().find("tied")->arguments()[0].persistent_id()[2].string() == "1");
  CHECK(parsed.root().find("tied to first")->arguments()[0].persistent_id()[2].string() == "0");
}

TEST_CASE("leaves a call with unusual arguments to the general machine") {
  TensorPickle pickle;
  pickle.add("first", "0").add("second", "1");
  pickle.add("with metadata", "2", {.extra = "}"});
  pickle.add("last", "3");
  const Parsed parsed(pickle.finish());
  CHECK(parsed.tree->packed_count() == 2);
  CHECK(parsed.root().find("with metadata")->arguments().size() == 7);
  CHECK(parsed.root().find("last")->arguments().size() == 6);
}

TEST_CASE("gives the same tree with and without packing for every flip of every byte") {
  TensorPickle pickle;
  pickle.add("first", "0").add("second", "1").add("third", "2", {.sizes = {}, .strides = {}});
  pickle.raw(unicode("pieces") + "(");
  for (std::uint32_t id = pickle.tensors[0]; id <= pickle.tensors[2]; ++id)
    pickle.raw(pickle.get(id));
  pickle.raw("t");
  const std::string good = pickle.finish();
  REQUIRE(Parsed(good).tree->packed_count() == 2);
  std::size_t packed = 0;
  for (std::size_t at = 0; at < good.size() - 1100; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      INFO("byte ", at, ", bit ", bit);
      packed += same_with_and_without_packing(bad);
    }
  }
  CHECK(packed > 0);
}

TEST_CASE("leaves a call whose empty sizes are spelled MARK TUPLE PUT to the general machine") {
  TensorPickle pickle;
  pickle.add("first", "0").add("second", "1");
  pickle.add("odd", "2", {.sizes = {}, .strides = {}, .spell_out_empty = true});
  pickle.raw(unicode("pieces") + "(");
  for (std::uint32_t id = pickle.tensors[1] + 1; id <= pickle.tensors[2]; ++id)
    pickle.raw(pickle.get(id));
  pickle.raw("t");
  const std::string text = pickle.finish();
  CHECK(same_with_and_without_packing(text) == 1);
  const Parsed parsed(text);
  const Value pieces = *parsed.root().find("pieces");
  REQUIRE(pieces.size() == 8);
  CHECK(describe(pieces[3]) == "()");
  CHECK(describe(pieces[4]) == "()");
  CHECK(describe(pieces[5]) == "collections.OrderedDict()");
}

TEST_CASE("starts over without packing when a memo id of a packed tensor is set again") {
  TensorPickle pickle;
  pickle.add("first", "0").add("second", "1");
  const std::uint32_t id = pickle.keys[1];
  pickle.raw(unicode("x") + "K\x2aq"s + static_cast<char>(id));
  pickle.raw(unicode("y") + pickle.get(id));
  const Parsed parsed(pickle.finish());
  CHECK(parsed.tree->packed_count() == 0);
  CHECK(parsed.root().find("y")->integer() == 42);
  CHECK(parsed.root().find("second")->arguments()[0].persistent_id()[2].string() == "1");
}

TEST_CASE("starts over without packing when a packed tensor is changed") {
  TensorPickle pickle;
  pickle.add("first", "0").add("second", "1");
  pickle.raw("}(" + unicode("a") + "K\x01ub");
  const Parsed parsed(pickle.finish());
  CHECK(parsed.tree->packed_count() == 0);
  CHECK(parsed.root().find("second")->state()->find("a")->integer() == 1);
}

TEST_CASE("refuses a stream that ends at any length") {
  TensorPickle pickle;
  pickle.add("first", "0").add("second", "1");
  std::string good = pickle.finish();
  good.resize(good.size() - 1100);
  REQUIRE(parse(good).has_value());
  for (std::size_t length = 0; length < good.size(); ++length)
    CHECK(refused(good.substr(0, length)).code == ErrorCode::corrupt);
}

TEST_CASE("refuses to call the result of a call but for an attribute of a global") {
  const std::string inner = "cbuiltins\ngetattr\ncmy\nOuter\n" + unicode("Inner") + "\x86R";
  for (const std::string& callable :
       {"cfoo\nbar\n)R"s, "cfoo\nbar\n" + inner + "\x85R", inner + ")\x81", inner + "}b",
        inner + "(" + unicode("a") + "Nu", "cfoo\nbar\nN" + unicode("a") + "\x86R",
        "cfoo\nbar\ncmy\nOuter\nN\x86R"s, "cfoo\nbar\ncmy\nOuter\n" + unicode("a") + "\x86\x81"})
    for (const char* call : {")R.", ")\x81."}) {
      const Error error = refused(callable + call);
      CHECK(error.code == ErrorCode::unsafe_pickle);
      CHECK(mentions(error, "calls an object, expected a named global"));
    }
  const Parsed parsed(inner + "K\1\x85R.");
  const Value callable = parsed.root().callable();
  CHECK(parsed.root().arguments()[0].integer() == 1);
  CHECK(callable.kind() == Kind::object);
  CHECK(callable.callable().name() == "getattr");
  CHECK(callable.arguments()[0].name() == "Outer");
  CHECK(callable.arguments()[1].string() == "Inner");
}

// --- protocols 0 and 1

TEST_CASE("reads INT and LONG as picklers write them") {
  CHECK(Parsed("I0\n.").root().integer() == 0);
  CHECK(Parsed("I-7\n.").root().integer() == -7);
  CHECK(Parsed("I9223372036854775807\n.").root().integer() == 9223372036854775807);
  CHECK(Parsed("L-9223372036854775808L\n.").root().integer() == INT64_MIN);
  CHECK(Parsed("L12\n.").root().integer() == 12);
  CHECK(Parsed("I00\n.").root().boolean() == false);
  CHECK(Parsed("I01\n.").root().boolean() == true);
}

TEST_CASE("reads integers of more than 64 bits from text") {
  const auto digits = [](const char* text) {
    const Parsed parsed(text);
    const auto found = parsed.root().big_integer().value();
    return std::string(reinterpret_cast<const char*>(found.data()), found.size());
  };
  CHECK(digits("L18446744073709551616L\n.") == std::string(8, '\0') + '\x01');        // 2^64
  CHECK(digits("I9223372036854775808\n.") == std::string(7, '\0') + "\x80"s + '\0');  // 2^63
  CHECK(digits("L-9223372036854775809L\n.") == std::string(7, '\xff') + "\x7f\xff");
  CHECK(digits("L-18446744073709551616L\n.") == std::string(8, '\0') + '\xff');
  CHECK(digits("L4722366482869645213696L\n.") == std::string(9, '\0') + '\x01');  // 2^72
  CHECK(digits("L-170141183460469231731687303715884105728L\n.") == std::string(15, '\0') + '\x80');
}

TEST_CASE("reads FLOAT as repr() spells it") {
  CHECK(Parsed("F0.1\n.").root().real() == 0.1);
  CHECK(Parsed("F-1e+16\n.").root().real() == -1e16);
  CHECK(Parsed("F5e-324\n.").root().real() == 5e-324);
  CHECK(Parsed("Finf\n.").root().real() == std::numeric_limits<double>::infinity());
  CHECK(Parsed("F-inf\n.").root().real() == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(*Parsed("Fnan\n.").root().real()));
  CHECK(std::signbit(*Parsed("F-0.0\n.").root().real()));
}

TEST_CASE("decodes STRING, which is text if it is UTF-8 and else bytes") {
  CHECK(Parsed("S'plain'\n.").root().string() == "plain");
  CHECK(Parsed("S\"it's\"\n.").root().string() == "it's");
  CHECK(Parsed("S''\n.").root().string() == "");
  CHECK(Parsed("S'a\\\\b\\'c\\n\\t\\x41\\101\\7'\n.").root().string() == "a\\b'c\n\tAA\a");
  CHECK(Parsed("S'h\\xc3\\xa9'\n.").root().string() == "h\xc3\xa9");
  CHECK(Parsed("S'h\xc3\xa9'\n.").root().string() == "h\xc3\xa9");
  const Parsed bytes("S'\\xff\\x00'\n.");
  CHECK(bytes.root().kind() == Kind::bytes);
  CHECK((*bytes.root().bytes())[0] == std::byte{0xff});
  CHECK(bytes.root().bytes()->size() == 2);
}

TEST_CASE("reads a str of Python 2 that is not UTF-8 as bytes, whatever its opcode") {
  CHECK(Parsed("U\x02\xc3\xa9.").root().string() == "\xc3\xa9");
  CHECK(Parsed("U\x01\xe9.").root().kind() == Kind::bytes);
  CHECK(Parsed("T\x01\x00\x00\x00\xe9."s).root().kind() == Kind::bytes);
  CHECK(Parsed("T\x03\x00\x00\x00\xed\xa0\x80."s).root().kind() == Kind::bytes);  // a surrogate
  CHECK(Parsed("T\x02\x00\x00\x00hi."s).root().string() == "hi");
}

TEST_CASE("decodes UNICODE to UTF-8") {
  CHECK(Parsed("Vplain\n.").root().string() == "plain");
  CHECK(Parsed("V\n.").root().string() == "");
  CHECK(Parsed("V\xe9\\u4e2d\\U0001f642\n.").root().string() ==
        "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x99\x82");
  CHECK(Parsed("V\\u005cn\\n\\\\u0041\\\n.").root().string() == "\\n\\n\\\\u0041\\");
  CHECK(Parsed("V\\ud83d\\ude42\n.").root().string() == "\xed\xa0\xbd\xed\xb9\x82");
}

TEST_CASE("keeps decoded text as key, name of a global and memo entry") {
  const Parsed parsed("}Va\\u0041\np0\nK\x05sVm\\u0061in\nS'\\x46oo'\n\x93p1\n0g0\ng1\n\x86\x86.");
  CHECK(parsed.root()[0].find("aA")->integer() == 5);
  CHECK(parsed.root()[1][0].string() == "aA");
  CHECK(parsed.root()[1][1].module() == "main");
  CHECK(parsed.root()[1][1].name() == "Foo");
  CHECK(parsed.root()[1][0].is_same_as((*parsed.root()[0].items().begin()).first));
}

TEST_CASE("builds LIST and DICT from what stands above the mark") {
  CHECK(Parsed("(lp0\n.").root().kind() == Kind::list);
  CHECK(Parsed("(I1\nI2\nl.").root().size() == 2);
  CHECK(Parsed("(d.").root().item_count() == 0);
  const Parsed dict("(Va\nI1\nVb\nI2\ndVc\nI3\ns.");
  CHECK(dict.root().item_count() == 3);
  CHECK(dict.root().find("b")->integer() == 2);
  CHECK(dict.root().find("c")->integer() == 3);
  CHECK(mentions(refused("(I1\nd."), "opcode DICT has 1 values"));
}

TEST_CASE("pops values and marks, and duplicates the top") {
  CHECK(Parsed("I1\nI2\n0.").root().integer() == 1);
  CHECK(Parsed("I1\n(0.").root().integer() == 1);  // the mark
  CHECK(Parsed("I1\n(I2\nI3\n1.").root().integer() == 1);
  const Parsed twice("(l2\x86.");
  CHECK(twice.root()[0].is_same_as(twice.root()[1]));
}

TEST_CASE("reads what picklers write for a tuple that contains itself") {
  // t = ([],); t[0].append(t), by protocols 0 and 2.
  const Parsed text("((lp0\n(g0\ntp1\na00g1\n."s);
  CHECK(text.root().kind() == Kind::tuple);
  const Parsed binary("\x80\x02]q\x00h\x00\x85q\x01\x61"s + "0h\x01.");
  CHECK(binary.root().kind() == Kind::tuple);
  CHECK(binary.root()[0][0].size() == 1);
}

TEST_CASE(
    "keeps INST and OBJ as calls of a class, and as an instance where there are no arguments") {
  const Parsed instance("(I1\nVa\nifoo\nBar\np0\n(Vx\nI2\ndb.");
  CHECK(instance.root().callable().module() == "foo");
  CHECK(instance.root().callable().name() == "Bar");
  CHECK(describe(instance.root().arguments()) == "(1,'a',)");
  CHECK(!instance.root().is_new_object());
  CHECK(instance.root().state()->find("x")->integer() == 2);
  CHECK(Parsed("(ifoo\nBar\n.").root().is_new_object());
  const Parsed object("(cfoo\nBar\nI1\no.");
  CHECK(object.root().callable().name() == "Bar");
  CHECK(describe(object.root().arguments()) == "(1,)");
  CHECK(Parsed("(cfoo\nBar\no.").root().is_new_object());
  CHECK(refused("(I1\no.").code == ErrorCode::unsafe_pickle);
}

TEST_CASE("keeps NEWOBJ_EX as the call that stands for it, keywords and all") {
  const Parsed parsed("cfoo\nBar\nI1\n\x85}Vkey\nI2\ns\x92.");
  CHECK(describe(parsed.root().callable()) == "copyreg.__newobj_ex__");
  CHECK(describe(parsed.root().arguments()) == "(foo.Bar,(1,),dict,)");
  CHECK(parsed.root().arguments()[2].find("key")->integer() == 2);
  CHECK(parsed.tree->globals().size() == 1);
  CHECK(mentions(refused("I1\n)}\x92."), "calls an integer"));
  CHECK(mentions(refused("cfoo\nBar\n]}\x92."), "a list for arguments"));
  CHECK(mentions(refused("cfoo\nBar\n))\x92."), "a tuple for keyword arguments"));
}

TEST_CASE("keeps PERSID as a persistent id that is text") {
  const Parsed parsed("P('storage', 1)\n.");
  CHECK(parsed.root().kind() == Kind::persistent_id);
  CHECK(parsed.root().persistent_id().string() == "('storage', 1)");
  CHECK(mentions(refused("Pa\xc3\xa9\n."), "expected ASCII text"));
}

TEST_CASE("refuses a packed tensor's name and key that are not UTF-8, and packs those that are") {
  for (const std::string& text : {"h\xc3\xa9"s, "name of a long tensor \xe4\xb8\xad"s}) {
    TensorPickle pickle;
    pickle.add("first", "0").add(text, "1").add("third", text);
    CHECK(Parsed(pickle.finish()).tree->packed_count() == 2);
  }
  for (const std::string& text :
       {"\xff"s, "abcdefg\xe9"s, "name of a long tensor \xe9"s, "\x80 name of a tensor"s}) {
    for (const bool is_name : {false, true}) {
      TensorPickle pickle;
      for (int i = 0; i < 40; ++i) pickle.add("t" + std::to_string(i), std::to_string(i));
      pickle.add(is_name ? text : "last", is_name ? "40" : text);
      const std::string bytes = pickle.finish();
      const Error error = refused(bytes);
      CHECK(mentions(error, "which is not UTF-8"));
      CHECK(error.file_offset == file_offset + bytes.find(unicode(text)));
    }
  }
}

// --- limits

TEST_CASE("takes as many open marks as four for each level of depth") {
  const pickle::ParseLimits four{1 << 20, 4};
  CHECK(parse(std::string(16, '(') + std::string(16, '0') + "N.", four).has_value());
  const Error error = refused(std::string(17, '(') + std::string(17, '0') + "N.", four);
  CHECK(error.code == ErrorCode::limit_exceeded);
  CHECK(mentions(error, "more open marks than the depth limit of 4 allows"));
  CHECK(error.file_offset == file_offset + 16);
}

TEST_CASE("takes nesting up to the limit, whatever makes it") {
  const pickle::ParseLimits five{1 << 20, 5};
  const auto nested = [](int depth, const std::string& begin, const std::string& end) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += begin;
    text += "N";
    for (int i = 0; i < depth; ++i) text += end;
    return text + ".";
  };
  for (const auto& [begin, end] : {std::pair{""s, "\x85"s},
                                   {"("s, "l"s},
                                   {"(N"s, "d"s},
                                   {"]"s, "a"s},
                                   {"(", "\x91"},
                                   {"", "Q"}}) {
    CHECK(parse(nested(5, begin, end), five).has_value());
    CHECK(mentions(refused(nested(6, begin, end), five), "nests deeper than 5"));
  }
  // A call with an argument is two levels: itself and its arguments.
  CHECK(parse(nested(2, "(", "ia\nb\n"), five).has_value());
  CHECK(refused(nested(3, "(", "ia\nb\n"), five).code == ErrorCode::limit_exceeded);
}

namespace {

// Counts what is taken at once.
class CountingMemory final : public std::pmr::memory_resource {
 public:
  std::size_t most = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    now_ += bytes;
    most = std::max(most, now_);
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    now_ -= bytes;
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  std::size_t now_ = 0;
};

}  // namespace

TEST_CASE("refuses bombs of opcodes within the memory that a pickle of that size may take") {
  constexpr std::size_t million = std::size_t{1} << 20;
  const auto repeated = [](std::size_t count, const std::string& text) {
    std::string made;
    made.reserve(count * text.size() + 16);
    for (std::size_t i = 0; i < count; ++i) made += text;
    return made;
  };
  std::string memo = "N";
  for (std::uint32_t i = 0; i < 120000; ++i) memo += "r" + u32(64 * i);
  const std::vector<std::string> bombs{
      std::string(16 * million, 'N') + ".",
      "(" + std::string(16 * million, 'N') + "t.",
      "N" + std::string(4 * million, '2') + ".",
      memo + std::string(8 * million, 'N'),
      repeated(million, "(l"),
      repeated(million, "(d"),
      repeated(million, "ca\nb\n"),
      repeated(million / 2, "(ia\nb\n"),
      repeated(million / 2, "V\\u4e2d\n"),
      repeated(million / 2, "L99999999999999999999L\n"),
      "ca\nb\n" + repeated(million, "2)R0"),
  };
  for (std::size_t i = 0; i < bombs.size(); ++i) {
    INFO("bomb ", i);
    CountingMemory memory;
    bytes::Buffer copy(bombs[i].size(), *std::pmr::new_delete_resource());
    std::memcpy(copy.data(), bombs[i].data(), bombs[i].size());
    const std::span<const std::byte> view = copy.span();
    const pickle::ParseLimits limits{(24 << 20) + 5 * view.size(), 1000};
    CHECK(!pickle::parse(std::move(copy), view, file_offset, limits, memory));
    CHECK(memory.most <= limits.budget_bytes + 2 * view.size() + 8192);
  }
}

TEST_CASE("a memo id is smaller than the pickle") {
  // A pickle of 7 bytes: None, LONG_BINPUT with four bytes, STOP.
  CHECK(parse("Nr" + u32(6) + ".").has_value());
  CHECK(mentions(refused("Nr" + u32(7) + "."), "memo id 7 is larger than the pickle itself"));
}

TEST_CASE("the sign is no digit of a number") {
  const std::string most(4300, '9');
  CHECK(parse("L" + most + "L\n.").has_value());
  CHECK(parse("L-" + most + "L\n.").has_value());
  CHECK(mentions(refused("L9" + most + "L\n."), "more than 4300 digits"));
  CHECK(!parse("L-9" + most + "L\n.").has_value());
}

TEST_CASE("bytes that protocol 2 writes as text, by both names of the encoding") {
  const auto encoded = [](const std::string& text, const std::string& encoding) {
    return "c_codecs\nencode\nX" + u32(static_cast<std::uint32_t>(text.size())) + text + "X" +
           u32(static_cast<std::uint32_t>(encoding.size())) + encoding + "\x86R.";
  };
  for (const std::string& encoding : {"latin1"s, "latin-1"s}) {
    CAPTURE(encoding);
    const Parsed made(encoded("a\xc3\xbf", encoding));
    REQUIRE(made.root().kind() == Kind::bytes);
    const auto bytes = *made.root().bytes();
    CHECK(std::vector(bytes.begin(), bytes.end()) == std::vector{std::byte{'a'}, std::byte{0xff}});
    // U+0100 is no byte.
    CHECK(Parsed(encoded("\xc4\x80", encoding)).root().kind() == Kind::object);
  }
  CHECK(Parsed(encoded("a", "utf-8")).root().kind() == Kind::object);
}

namespace {

Result<std::uint64_t> end_of(const std::string& text, std::uint64_t offset) {
  const bytes::MemorySource source(std::as_bytes(std::span(text)));
  bytes::ReadCache cache(source, *std::pmr::new_delete_resource());
  return pickle::find_end(cache, offset, 100);
}

}  // namespace

TEST_CASE("the end of a pickle is behind its STOP, and none is found where there is none") {
  CHECK(end_of("..K..", 2) == 5u);  // the operand of K is a dot, too
  const Error behind = end_of("N.", 3).error();
  CHECK(behind.message == "it begins behind the end of the file");
  CHECK(behind.file_offset == 3u);
  // A length that leads back to the first byte if the sum is not checked.
  const std::string text = ".\x8d"s + std::string("\xf6") + std::string(7, '\xff');
  const Error around = end_of(text, 1).error();
  CHECK(around.code == ErrorCode::corrupt);
  CHECK(around.message.starts_with("the file is truncated"));
}
