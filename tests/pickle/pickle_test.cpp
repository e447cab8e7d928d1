// The pickle machine, from byte strings.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "runtime/pickle/parse.hpp"
#include "tests/pickle/packing.hpp"
#include "tests/pickle/tensor_pickle.hpp"

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

TEST_CASE("packs every rank, wide integers and requires_grad") {
  TensorPickle pickle;
  pickle.add("first", "0");
  pickle.add("scalar", "1", {.sizes = {}, .strides = {}, .numel = 1});
  pickle.add("five", "2", {.sizes = {1, 2, 3, 4, 5}, .strides = {120, 60, 20, 5, 1}});
  pickle.add(
      "wide", "3",
      {.sizes = {70000, 300}, .strides = {300, 1}, .numel = 21000000, .requires_grad = true});
  pickle.add("huge", "4",
             {.sizes = {std::int64_t{1} << 40}, .strides = {1}, .numel = std::int64_t{1} << 40});
  const Parsed parsed(pickle.finish());
  CHECK(parsed.tree->packed_count() == 4);
  const auto arguments = [&](const char* name) { return parsed.root().find(name)->arguments(); };
  CHECK(describe(arguments("scalar")[2]) == "()");
  CHECK(describe(arguments("five")[2]) == "(1,2,3,4,5,)");
  CHECK(describe(arguments("five")[3]) == "(120,60,20,5,1,)");
  CHECK(describe(arguments("wide")[2]) == "(70000,300,)");
  CHECK(arguments("wide")[4].boolean() == true);
  CHECK(arguments("huge")[0].persistent_id()[4].integer() == std::int64_t{1} << 40);
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

TEST_CASE("gives a right tree or an error for every flip of every byte of packed tensors") {
  TensorPickle pickle;
  for (int i = 0; i < 4; ++i) pickle.add("t" + std::to_string(i), std::to_string(i));
  const std::string good = pickle.finish();
  const std::size_t used = good.size() - 1100;
  std::size_t parsed_count = 0;
  for (std::size_t at = 0; at < used; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      const auto result = parse(bad);
      if (!result) {
        CHECK(result.error().file_offset >= file_offset);
        continue;
      }
      ++parsed_count;
      for (const auto& [name, tensor] : Value(result->get(), (*result)->root()).items())
        CHECK(!describe(tensor).empty());
    }
  }
  CHECK(parsed_count > 0);
  CHECK(parsed_count < used * 8);
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

TEST_CASE("refuses opcodes that only code could answer, by name") {
  for (const auto& [opcode, name] : {std::pair{"i", "INST"},
                                     {"o", "OBJ"},
                                     {"\x92", "NEWOBJ_EX"},
                                     {"\x82", "EXT1"},
                                     {"\x83", "EXT2"},
                                     {"\x84", "EXT4"},
                                     {"P", "PERSID"},
                                     {"\x97", "NEXT_BUFFER"}}) {
    const Error error = refused("K\x01"s + opcode + "aaaa\naaaa\n.");
    CHECK(error.code == ErrorCode::unsafe_pickle);
    CHECK(mentions(error, "opcode "s + name));
    CHECK(error.file_offset == file_offset + 2);
  }
}

TEST_CASE("refuses text opcodes of protocol 0 by name") {
  CHECK(mentions(refused("I1\n."), "opcode INT"));
  CHECK(refused("I1\n.").code == ErrorCode::unsupported);
  CHECK(refused("2.").code == ErrorCode::unsupported);
}

TEST_CASE("refuses a byte that is no opcode") {
  const Error error = refused("\xff.");
  CHECK(error.code == ErrorCode::corrupt);
  CHECK(mentions(error, "0xff"));
}

TEST_CASE("refuses other protocols") {
  CHECK(refused("\x80\x01N.").code == ErrorCode::unsupported);
  CHECK(refused("\x80\x06N.").code == ErrorCode::unsupported);
}

TEST_CASE("refuses every opcode that finds too little on the stack") {
  for (const std::string& opcode :
       {"a"s, "e"s, "s"s, "u"s, "R"s, "b"s, "Q"s, "t"s, "\x81"s, "\x85"s, "\x86"s, "\x87"s, "\x90"s,
        "\x91"s, "\x93"s, "q\x01"s, "."s})
    CHECK_MESSAGE(refused(opcode + ".").code == ErrorCode::corrupt, opcode);
}

TEST_CASE("refuses to reach through a mark") {
  CHECK(refused("K\x01(\x85.").code == ErrorCode::corrupt);
  CHECK(refused("](a.").code == ErrorCode::corrupt);
  CHECK(refused("(q\x01t.").code == ErrorCode::corrupt);
}

TEST_CASE("refuses to stop with marks or more than one value") {
  CHECK(refused("(N.").code == ErrorCode::corrupt);
  CHECK(refused("NN.").code == ErrorCode::corrupt);
}

TEST_CASE("refuses memo ids that were not set or are larger than the pickle") {
  CHECK(mentions(refused("h\x05."), "memo id 5"));
  CHECK(refused("j\xff\xff\xff\xff.").code == ErrorCode::corrupt);
  CHECK(refused("Nr\xff\xff\xff\x7f.").code == ErrorCode::limit_exceeded);
}

TEST_CASE("refuses lengths beyond the end before allocating") {
  CHECK(refused("X\xff\xff\xff\xff.").code == ErrorCode::corrupt);
  CHECK(refused("\x8d\xff\xff\xff\xff\xff\xff\xff\xff.").code == ErrorCode::corrupt);
  CHECK(refused("\x96\x00\x00\x00\x00\x00\x00\x00\x40."s).code == ErrorCode::corrupt);
  CHECK(refused("\x8b\xff\xff\xff\xff.").code == ErrorCode::corrupt);
  CHECK(refused("\x8b\xff\xff\xff\x7f.").code == ErrorCode::corrupt);
  CHECK(refused("T\xff\xff\xff\xff.").code == ErrorCode::corrupt);
  CHECK(refused("\x95\xff\xff\xff\xff\xff\xff\xff\xff.").code == ErrorCode::corrupt);
}

TEST_CASE("refuses SETITEMS and APPENDS on what is neither container nor object") {
  CHECK(refused(")(K\x01K\x02u.").code == ErrorCode::unsafe_pickle);
  CHECK(refused("](K\x01K\x02u.").code == ErrorCode::unsafe_pickle);
  CHECK(refused("}K\x01"
                "a.")
            .code == ErrorCode::unsafe_pickle);
  CHECK(refused("}(K\x01u.").code == ErrorCode::corrupt);
}

TEST_CASE("refuses BUILD on anything but an object") {
  CHECK(refused("]}b.").code == ErrorCode::unsafe_pickle);
  CHECK(refused("K\x01Q}b.").code == ErrorCode::unsafe_pickle);
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
  CHECK(refused("cfoo\nbar\nK\x01R.").code == ErrorCode::corrupt);
  const Parsed parsed(inner + "K\1\x85R.");
  const Value callable = parsed.root().callable();
  CHECK(parsed.root().arguments()[0].integer() == 1);
  CHECK(callable.kind() == Kind::object);
  CHECK(callable.callable().name() == "getattr");
  CHECK(callable.arguments()[0].name() == "Outer");
  CHECK(callable.arguments()[1].string() == "Inner");
}

TEST_CASE("refuses classes in more than eight others") {
  const auto nested = [](int depth) {
    std::string text = "cmy\nOuter\n";
    for (int i = 0; i < depth; ++i)
      text = "cbuiltins\ngetattr\n" + text + unicode("Inner") + "\x86R";
    return text + ")\x81.";
  };
  CHECK(Parsed(nested(8)).root().is_new_object());
  CHECK(refused(nested(9)).code == ErrorCode::unsafe_pickle);
}

TEST_CASE("refuses STACK_GLOBAL of other things than strings") {
  CHECK(refused("K\x01K\x02\x93.").code == ErrorCode::unsafe_pickle);
}

TEST_CASE("refuses nesting beyond the limit, for each kind of container") {
  const std::size_t depth = 1500;
  std::string tuples = "N", lists = "N", calls = "N";
  for (std::size_t i = 0; i < depth; ++i) tuples += "\x85";
  lists = std::string(depth, ']') + std::string(depth - 1, 'a');
  calls = "N";
  for (std::size_t i = 0; i < depth; ++i) calls = "ca\nb\n" + calls + "\x85R";
  CHECK(refused(tuples + ".").code == ErrorCode::limit_exceeded);
  CHECK(refused(lists + ".").code == ErrorCode::limit_exceeded);
  CHECK(refused(calls + ".").code == ErrorCode::limit_exceeded);
  CHECK(refused(std::string(5000, '(') + ".").code == ErrorCode::limit_exceeded);
}

TEST_CASE("frees a million nested values without recursion") {
  // Deeper than the limit allows at once: siblings of siblings, garbage included.
  std::string text = "](";
  for (int i = 0; i < 100000; ++i) text += "]}N\x87";
  CHECK(Parsed(text + "e.").root().size() == 100000);
}

TEST_CASE("stays within its memory budget") {
  const pickle::ParseLimits tight{1 << 20, 1000};
  CHECK(refused("(" + std::string(1 << 20, 'N') + "t.", tight).code == ErrorCode::limit_exceeded);
  std::string memo = "N";
  for (std::uint32_t i = 0; i < 200000; ++i) memo += "r" + u32(i);
  CHECK(refused(memo + ".", tight).code == ErrorCode::limit_exceeded);
  std::string lists;
  for (int i = 0; i < 40000; ++i) lists += "]N\x86";
  CHECK(refused(lists + ".", tight).code == ErrorCode::limit_exceeded);
}
