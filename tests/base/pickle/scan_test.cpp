// Which globals a pickle names, from byte strings.
#include "runtime/base/pickle/scan.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/pickle/parse.hpp"

using namespace weightmap;
using namespace std::string_literals;

namespace {

constexpr std::uint64_t file_offset = 1000;
constexpr std::uint64_t roomy = std::uint64_t{64} << 20;

struct Scanned {
  std::vector<std::string> names;  // "module.name@position"
  pickle::Scan scan;
};

Scanned scan(const std::string& text, std::uint64_t budget = roomy) {
  Scanned made;
  made.scan = pickle::scan_globals(
      std::as_bytes(std::span(text)), file_offset, budget, [&](const pickle::ScannedGlobal& it) {
        made.names.push_back(std::string(it.module) + "." + std::string(it.name) + "@" +
                             std::to_string(it.position));
      });
  return made;
}

std::vector<std::string> names_in(const std::string& text) {
  const Scanned made = scan(text);
  CHECK_MESSAGE(!made.scan.fault, (made.scan.fault ? made.scan.fault->message : ""));
  return made.names;
}

Error fault_of(const std::string& text, std::uint64_t budget = roomy) {
  const Scanned made = scan(text, budget);
  REQUIRE(made.scan.fault.has_value());
  return *made.scan.fault;
}

std::string text4(const std::string& text) {
  return "\x8c"s + static_cast<char>(text.size()) + text;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("finds what GLOBAL, INST and STACK_GLOBAL name, with the place of the opcode") {
  CHECK(names_in("\x80\x02"
                 "cos\nsystem\n.") == Names{"os.system@2"});
  CHECK(names_in("(S'id'\nios\nsystem\n.") == Names{"os.system@7"});
  CHECK(names_in("\x80\x04" + text4("os") + text4("system") + "\x93.") == Names{"os.system@14"});
  CHECK(names_in("cm\na\ncm\nb\n\x86.") == Names{"m.a@0", "m.b@5"});
}

TEST_CASE("takes the names of STACK_GLOBAL from wherever the stack has them") {
  // By the memo, counted as Python counts it: PUT 5 makes one entry, so that MEMOIZE is number 1.
  CHECK(names_in(text4("os") + "q\x05" + text4("system") + "\x94h\x05h\x01\x93.") ==
        Names{"os.system@19"});
  // ... so that here it takes the place of "math".
  CHECK(names_in("(" + text4("math") + "q\x01" + text4("os") + "\x94h\x01" + text4("system") +
                 "\x93t.") == Names{"os.system@24"});
  CHECK(names_in(text4("os") + "p0\n" + text4("system") + "p1\n00g0\ng1\n\x93.") ==
        Names{"os.system@26"});
  CHECK(names_in("Vos\nVsystem\n\x93.") == Names{"os.system@12"});
  CHECK(names_in("S'os'\nS\"system\"\n\x93.") == Names{"os.system@16"});
  CHECK(names_in("U\x02osU\x06system\x93.") == Names{"os.system@12"});
  CHECK(names_in("X\x02\0\0\0osT\x06\0\0\0system\x93."s) == Names{"os.system@18"});
  CHECK(names_in("\x8d\x02\0\0\0\0\0\0\0os"s + text4("system") + "\x93.") == Names{"os.system@19"});
  // Duplicated, with something put on top of it and taken off again.
  CHECK(names_in(text4("os") + "2\x93.") == Names{"os.os@5"});
  CHECK(names_in(text4("os") + "(NN1" + "N0" + "(0" + text4("system") + "\x93.") ==
        Names{"os.system@20"});
  // Memo ids that are set again.
  CHECK(names_in(text4("os") + "q\0"s + text4("sys") + "q\0h\0"s + text4("exit") + "\x93.") ==
        Names{"sys.exit@21"});
}

TEST_CASE("follows the memo as far as Python does, not only as picklers write it") {
  const auto kept = [](const std::string& put, const std::string& get) {
    return names_in(text4("os") + put + "0" + get + text4("system") + "\x93.");
  };
  CHECK(kept("p4000000000\n", "g4000000000\n").front().starts_with("os.system@"));
  CHECK(kept("r\xff\xff\xff\x7f", "j\xff\xff\xff\x7f").front().starts_with("os.system@"));
  for (const std::string& id : {"+7"s, " 7"s, "7 "s, "0_7"s, "07"s, "7\0x"s})
    CHECK(kept("p" + id + "\n", "h\7").front().starts_with("os.system@"));
  CHECK(names_in("I0x1_f\n0L1L\n0Fnan\n0F1.5\0x\n0cos\nsystem\n."s) == Names{"os.system@27"});
}

TEST_CASE("tells whether a call of what a name stands for is made") {
  const auto has_calls = [](const std::string& text) { return scan(text).scan.has_calls; };
  for (const std::string& call : {"cm\nf\n)R."s, "cm\nf\n)\x81."s, "cm\nf\n)}\x92."s, "cm\nf\nNb."s,
                                  "(im\nf\n."s, "(cm\nf\no."s, "Vm\nVf\n\x93)R."s,
                                  "V\\u006d\nVf\n\x93)R."s, "cm\nf\n)R)R."s, "cm\nf\nq\0h\0)R."s})
    CHECK_MESSAGE(has_calls(call), call);
  for (const std::string& none : {"cm\nf\n."s, "N)R."s, "NN\x93)R."s, "(No."s, "N)\x81."s})
    CHECK_MESSAGE(!has_calls(none), none);
}

TEST_CASE("says how many bytes a truncated pickle has at least") {
  CHECK(scan("X\x10\0\0\0ab"s).scan.needs == 21);
  CHECK(scan("cos").scan.needs == 4);
}

TEST_CASE("says of a name that only running tells that it is not told") {
  CHECK(names_in("cm\nf\n)RU\x01n\x93.") == Names{"m.f@0", ".@10"});
  CHECK(names_in(text4("os") + "C\x06system\x93.") == Names{".@12"});
  CHECK(names_in("Vo\\u0073\nVsystem\n\x93.") == Names{".@17"});
  CHECK(names_in("\x82\x01.") == Names{".@0"});
  CHECK(names_in("\x83\x01\x02.") == Names{".@0"});
  CHECK(names_in("\x84\x01\x02\x03\x04.") == Names{".@0"});
  CHECK(names_in("c" + std::string(4097, 'm') + "\nf\n.") == Names{".@0"});
  CHECK(names_in("c" + std::string(4096, 'm') + "\nf\n.").front().size() == 4096 + 4);
}

TEST_CASE("goes past every opcode that Python has") {
  const std::string all =
      "\x80\x05\x95\x09\0\0\0\0\0\0\0I1\nL2L\nF1.5\nK\x01M\x01\x02J\x01\x02\x03\x04\x8a\x01\x01"
      "\x8b\x01\0\0\0\x01G12345678N\x88\x89(1)](a0(e0](e0}(u0}NNs0\x8f(\x90"
      "0(\x91(t(l(dN\x85NN\x86NNN\x87Pid\nNQ(o\x97\x98N)\x81N)}\x92N)"
      "RNbB\x01\0\0\0xC\x01x\x8e\x01\0\0\0\0\0\0\0x"
      "\x96\x01\0\0\0\0\0\0\0xr\x01\0\0\0j\x01\0\0\0."s;
  // `](a`: a list, and a mark that APPEND does not look below.
  CHECK(fault_of(all).message.find("opcode APPEND needs 1 value") != std::string::npos);
  std::string good = all;
  good.replace(good.find("](a0"), 4, "]Na0");
  CHECK(names_in(good).empty());
}

TEST_CASE("ends at STOP and says how long the pickle is") {
  CHECK(scan("N.cos\nsystem\n.").names.empty());
  CHECK(scan("N.cos\nsystem\n.").scan.length == 2);
}

TEST_CASE("tells what it found before a fault, and where the fault is") {
  const Scanned cut = scan("cos\nsystem\nX\x10");
  CHECK(cut.names == Names{"os.system@0"});
  CHECK(cut.scan.ends_early);
  CHECK(cut.scan.fault->message == "opcode BINUNICODE needs 4 bytes, the pickle has 1 left");
  CHECK(cut.scan.fault->file_offset == file_offset + 11);
  CHECK(cut.scan.length == 11);
  const Scanned odd = scan("cos\nsystem\n\xff");
  CHECK(odd.names == Names{"os.system@0"});
  CHECK(!odd.scan.ends_early);
  CHECK(odd.scan.fault->message == "the pickle has byte 0xff where an opcode should be");
}

TEST_CASE("refuses what stops Python, too") {
  CHECK(fault_of("").message == "the pickle ends without a STOP opcode");
  CHECK(fault_of(".").message == "the pickle stops with nothing on its stack");
  CHECK(fault_of("\x80\x06N.").message == "the pickle has protocol 6");
  CHECK(fault_of("0").message == "opcode POP needs 1 value above the last mark, found 0");
  CHECK(fault_of("N(\x85.").message == "opcode TUPLE1 needs 1 value above the last mark, found 0");
  CHECK(fault_of("t").message == "opcode TUPLE finds no mark on the stack");
  CHECK(fault_of("h\x01.").message == "memo id 1 was never set");
  CHECK(fault_of("g-1\n.").message == "opcode GET has a memo id that is not a number");
  CHECK(fault_of("Imore\n.").message == "opcode INT has no number");
  CHECK(fault_of("Format\n.").message == "opcode FLOAT has no number");
  CHECK(fault_of("q\x01.").message == "opcode BINPUT finds nothing to keep");
  CHECK(fault_of("g1x\n.").message == "opcode GET has a memo id that is not a number");
  CHECK(fault_of("Sx\n.").message == "opcode STRING has a text without quotes");
  CHECK(fault_of("cos").message == "opcode GLOBAL has no newline behind it");
  CHECK(fault_of("\x93").message ==
        "opcode STACK_GLOBAL needs 2 values above the last mark, found 0");
}

TEST_CASE("takes no more memory than it may") {
  const Error error = fault_of(std::string(100000, 'N') + ".", 65536);
  CHECK(error.code == ErrorCode::limit_exceeded);
  CHECK(error.message == "the names in the pickle need more memory than 65536 bytes");
  CHECK(fault_of(std::string(100000, '(') + ".", 65536).code == ErrorCode::limit_exceeded);
  CHECK(fault_of("Nr\xf0\xff\0\0"s + std::string(100000, ' '), 65536).code ==
        ErrorCode::limit_exceeded);
}

TEST_CASE("finds the same names as the machine that makes the tree") {
  const std::string pickles[] = {
      "\x80\x02}(X\x01\0\0\0wctorch\nSize\n(K\x01t\x85Ru."s,
      "\x80\x04\x95\x17\0\0\0\0\0\0\0"s + text4("m") + "\x94" + text4("n") +
          "\x94\x93\x94)\x81\x94}\x94h\0h\0h\x01\x93sb."s,
      "ccollections\nOrderedDict\n)Rcm\nA\n)\x81}b\x86.",
  };
  for (const std::string& text : pickles) {
    CAPTURE(text);
    std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
    bytes::Buffer copy(text.size(), memory);
    std::memcpy(copy.data(), text.data(), text.size());
    const std::span<const std::byte> view = copy.span();
    const auto tree = pickle::parse(std::move(copy), view, 0, {roomy, 1000}, memory);
    REQUIRE_MESSAGE(tree.has_value(), (tree ? "" : tree.error().message));
    Names expected;
    for (const value::Global* global : (*tree)->globals())
      expected.push_back(std::string(global->module) + "." + std::string(global->name) + "@" +
                         std::to_string(global->position));
    CHECK(names_in(text) == expected);
  }
}

TEST_CASE("a minus in front of memo id 0 is that id") {
  CHECK(names_in("\x8c\x02os\x94p-0\ng0\n\x8c\x06system\x93."s) ==
        std::vector<std::string>{"os.system@20"});
}

TEST_CASE("a global from the stack needs two values above the mark") {
  const Scanned made = scan("\x8c\x02os(\x8c\x06system\x93."s);
  CHECK(made.names.empty());
  REQUIRE(made.scan.fault);
  CHECK(made.scan.fault->message ==
        "opcode STACK_GLOBAL needs 2 values above the last mark, found 1");
}
