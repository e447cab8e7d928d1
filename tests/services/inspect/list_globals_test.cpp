// What the pickles of a file name, wherever they are in it.
#include "runtime/services/inspect/list_globals.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/archive_builder.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/temporary_file.hpp"

using namespace weightmap;
using namespace std::string_literals;
using test::ArchiveBuilder;

namespace {

const std::string harmless = "\x80\x02]ccollections\nOrderedDict\na.";
const std::string evil =
    "\x80\x02"
    "cposix\nsystem\nX\x02\0\0\0id\x85R."s;
const std::string unknown =
    "\x80\x02"
    "cfractions\nFraction\n."s;

struct Fixture {
  test::TemporaryFolder folder;

  std::filesystem::path archive(
      const std::vector<std::pair<std::string, std::string>>& records) const {
    ArchiveBuilder builder;
    for (const auto& [name, content] : records) builder.add("archive/" + name, content);
    return folder.write("archive.pt", builder.finish());
  }
  FileGlobals list(const std::filesystem::path& path, const OpenOptions& options = {}) const {
    Result<FileGlobals> globals = list_globals(path, options);
    REQUIRE_OK(globals);
    return std::move(*globals);
  }
};

// "data.pkl: posix.system harmful x1", one for each global.
std::vector<std::string> lines(const FileGlobals& globals) {
  std::vector<std::string> lines;
  for (const PickleGlobals& pickle : globals.pickles)
    for (const NamedGlobal& global : pickle.globals)
      lines.push_back((pickle.record.empty() ? "" : pickle.record + ": ") + global.module + "." +
                      global.name + " " + std::string(to_string(global.verdict)) + " x" +
                      std::to_string(global.count));
  return lines;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE_FIXTURE(Fixture, "lists each name of a checkpoint once, counted, with its place") {
  const FileGlobals globals = list(test::data / "state_dict.pt");
  CHECK(globals.format == Format::torch_zip);
  REQUIRE(globals.pickles.size() == 1);
  const PickleGlobals& pickle = globals.pickles.front();
  CHECK(pickle.record == "data.pkl");
  CHECK(!pickle.is_hidden);
  CHECK(pickle.bytes_behind == 0);
  CHECK(!pickle.fault);
  const std::string file = test::read_file(test::data / "state_dict.pt");
  for (const NamedGlobal& global : pickle.globals) {
    CHECK(global.verdict == GlobalVerdict::torch_safe);
    CHECK(file.substr(global.file_offset, global.module.size() + global.name.size() + 2) ==
          "c" + global.module + "\n" + global.name);
  }
}

TEST_CASE_FIXTURE(Fixture, "lists names for which the file is refused") {
  const auto path = archive({{"data.pkl", evil}, {"version", "3\n"}});
  CHECK_FAILS(Checkpoint::open(path), ErrorCode::unsafe_pickle, "posix.system");
  CHECK(lines(list(path)) == Lines{"data.pkl: posix.system harmful x1"});
  CHECK(list(path).pickles[0].globals[0].file_offset == Checkpoint::open(path).error().file_offset);
}

TEST_CASE_FIXTURE(Fixture, "lists the names before the place where a pickle is damaged") {
  const auto path = archive({{"data.pkl",
                              "\x80\x02"
                              "cfractions\nFraction\n\xff"s}});
  const FileGlobals globals = list(path);
  CHECK(lines(globals) == Lines{"data.pkl: fractions.Fraction unknown x1"});
  CHECK(globals.pickles[0].fault->message == "the pickle has byte 0xff where an opcode should be");
}

TEST_CASE_FIXTURE(Fixture, "lists the names of a record whose checksum is wrong") {
  ArchiveBuilder builder;
  const test::Bytes payload = test::to_bytes(evil);
  builder.add_stored_as("archive/data.pkl", payload, payload.size(), zip::Method::stored, 7);
  const FileGlobals globals = list(folder.write("sum.pt", builder.finish()));
  CHECK(lines(globals) == Lines{"data.pkl: posix.system harmful x1"});
  CHECK(globals.pickles[0].fault->code == ErrorCode::corrupt);
}

TEST_CASE_FIXTURE(Fixture, "judges by torch's list and by what is allowed") {
  const auto path = archive({{"data.pkl", unknown}});
  CHECK(lines(list(path)) == Lines{"data.pkl: fractions.Fraction unknown x1"});
  OpenOptions options;
  options.safe_globals = {"fractions.Fraction"};
  CHECK(lines(list(path, options)) == Lines{"data.pkl: fractions.Fraction allowed x1"});
  options.safe_globals = {"posix.system"};
  CHECK(lines(list(archive({{"data.pkl", evil}}), options)) ==
        Lines{"data.pkl: posix.system harmful x1"});
  CHECK(is_unsafe(GlobalVerdict::unknown));
  CHECK(is_unsafe(GlobalVerdict::harmful));
  CHECK(!is_unsafe(GlobalVerdict::torch_safe));
  CHECK(!is_unsafe(GlobalVerdict::allowed));
  CHECK(!is_unsafe(GlobalVerdict::torchscript));
}

TEST_CASE_FIXTURE(Fixture, "calls what Python 2 wrote as Python 3 does") {
  const auto path =
      archive({{"data.pkl", "c__builtin__\nset\nc__builtin__\nxrange\ncStringIO\nopen\n\x87."}});
  CHECK(lines(list(path)) == Lines{"data.pkl: builtins.set torch_safe x1",
                                   "data.pkl: builtins.range unknown x1",
                                   "data.pkl: io.open harmful x1"});
}

TEST_CASE_FIXTURE(Fixture, "says of a name that the pickle makes up that it is harmful") {
  const auto path = archive({{"data.pkl",
                              "\x80\x04"
                              "C\x02os\x8c\x06system\x93."s}});
  const FileGlobals globals = list(path);
  REQUIRE(globals.pickles[0].globals.size() == 1);
  CHECK(globals.pickles[0].globals[0].module.empty());
  CHECK(globals.pickles[0].globals[0].verdict == GlobalVerdict::harmful);
}

TEST_CASE_FIXTURE(Fixture, "finds a second pickle behind the first, and bytes behind both") {
  const FileGlobals globals = list(archive({{"data.pkl", harmless + evil + "xyz"}}));
  CHECK(lines(globals) == Lines{"data.pkl: collections.OrderedDict torch_safe x1",
                                "data.pkl: posix.system harmful x1"});
  CHECK(!globals.pickles[0].is_hidden);
  CHECK(globals.pickles[0].bytes_behind == 3);
  CHECK(globals.pickles[1].is_hidden);
  CHECK(globals.pickles[1].file_offset == globals.pickles[0].file_offset + harmless.size());
}

TEST_CASE_FIXTURE(Fixture, "finds pickles in other records, by their names and by their bytes") {
  const FileGlobals globals = list(archive({{"data.pkl", harmless},
                                            {"extra.PKL", "cposix\nsystem\n."},
                                            {"notes.txt", evil},
                                            {"data/0", evil},
                                            {"numbers", "\x80\x02\xff numbers"s},
                                            {"readme", "nothing"}}));
  CHECK(lines(globals) == Lines{"data.pkl: collections.OrderedDict torch_safe x1",
                                "extra.PKL: posix.system harmful x1",
                                "notes.txt: posix.system harmful x1"});
  CHECK(!globals.pickles[0].is_hidden);
  CHECK(globals.pickles[1].is_hidden);
  CHECK(globals.pickles[2].is_hidden);
}

TEST_CASE_FIXTURE(Fixture, "looks into archives in archives") {
  const std::string inner = test::read_file(archive({{"data.pkl", evil}}));
  const FileGlobals globals = list(archive({{"data/samples/inner.pt", inner}}));
  CHECK(globals.format == Format::zip);
  REQUIRE(lines(globals) ==
          Lines{"archive/data/samples/inner.pt//data.pkl: posix.system harmful x1"});
  const std::string outer = test::read_file(folder.path() / "archive.pt");
  CHECK(outer.substr(globals.pickles[0].globals[0].file_offset, 6) == "cposix");
}

TEST_CASE_FIXTURE(Fixture, "knows TorchScript's own names in its archives and nowhere else") {
  const std::string script =
      "\x80\x02"
      "c__torch__.Net\nNet\nctorch.jit._pickle\nbuild_intlist\n\x86."s;
  const FileGlobals in_script = list(archive({{"data.pkl", script},
                                              {"constants.pkl", ")."},
                                              {"code/__torch__.py", "class Net(Module):"}}));
  CHECK(in_script.format == Format::torchscript);
  CHECK(in_script.code == Lines{"code/__torch__.py"});
  CHECK(lines(in_script) == Lines{"data.pkl: __torch__.Net.Net torchscript x1",
                                  "data.pkl: torch.jit._pickle.build_intlist torchscript x1"});
  CHECK(lines(list(archive({{"data.pkl", script}}))) ==
        Lines{"data.pkl: __torch__.Net.Net unknown x1",
              "data.pkl: torch.jit._pickle.build_intlist unknown x1"});
  OpenOptions torch_safe;
  torch_safe.globals = Globals::torch_safe;
  for (const char* name : {"torchscript.pt", "scripted.pt"}) {
    CAPTURE(name);
    REQUIRE_OK(Checkpoint::open(test::data / name, torch_safe));
    const FileGlobals fixture = list(test::data / name);
    CHECK(fixture.format == Format::torchscript);
    CHECK(!fixture.code.empty());
    for (const PickleGlobals& pickle : fixture.pickles) {
      CHECK(!pickle.is_hidden);
      CHECK(!pickle.fault);
      for (const NamedGlobal& global : pickle.globals) CHECK(!is_unsafe(global.verdict));
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "lists a bare pickle, of protocol 0 only where it can do nothing else") {
  const FileGlobals globals = list(folder.write("bare.pkl", evil));
  CHECK(globals.format == Format::pickle);
  CHECK(lines(globals) == Lines{"posix.system harmful x1"});
  // Damaged behind the call: Python has run it by then.
  const FileGlobals cut = list(folder.write("cut.pkl", "cposix\nsystem\n(S'id'\ntR"s));
  CHECK(lines(cut) == Lines{"posix.system harmful x1"});
  CHECK(cut.pickles[0].fault.has_value());
  CHECK_FAILS(list_globals(folder.write("text.txt", "some words\nof text\n"s)),
              ErrorCode::not_a_checkpoint, "is not a torch checkpoint");
}

// Of two bytes each, {"w": array of joblib with these elements, "x": ...}.
std::string joblib(const std::string& elements, const std::string& more) {
  const std::string dtype =
      "cnumpy\ndtype\n(X\2\0\0\0u1\x89\x88tR(K\3X\1\0\0\0|NNNJ\xff\xff\xff\xff"
      "J\xff\xff\xff\xffK\0tb"s;
  const std::string size = "K"s + static_cast<char>(elements.size()) + "\x85";
  return "\x80\2}(X\1\0\0\0wcjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81}("
         "X\x08\0\0\0subclasscnumpy\nndarray\nX\5\0\0\0shape"s +
         size + "X\5\0\0\0orderX\1\0\0\0CX\5\0\0\0dtype"s + dtype + "ub" + elements +
         "X\1\0\0\0x"s + more + "u.";
}

TEST_CASE_FIXTURE(Fixture, "goes on behind an array of joblib, and reads it as opcodes as well") {
  const Lines plain = {"joblib.numpy_pickle.NumpyArrayWrapper unknown x1",
                       "numpy.ndarray plain_data x1", "numpy.dtype plain_data x1"};
  const auto check = [&](const std::string& elements, const std::string& more,
                         const Lines& others) {
    CAPTURE(elements);
    const FileGlobals globals = list(folder.write("joblib.pkl", joblib(elements, more)));
    Lines expected = plain;
    expected.insert(expected.end(), others.begin(), others.end());
    CHECK(globals.format == Format::pickle);
    CHECK(lines(globals) == expected);
    REQUIRE(globals.pickles.size() == 1);
    CHECK(!globals.pickles[0].fault);
    CHECK(globals.pickles[0].bytes_behind == 0);
  };
  const std::string call = "cposix\nsystem\nX\2\0\0\0id\x85R"s;
  for (const std::string& elements : {"\xff\xff"s, "."s, "c\xfe\n\xff\n"s, "T\xff\0\0\0"s}) {
    check(elements, "N", {});
    check(elements, call, {"posix.system harmful x1"});
  }
  // Who reads the file without joblib runs this.
  check("cposix\nsystem\n.", "N", {"posix.system harmful x1"});
  const std::string whole = joblib("\xff\xff", "N");
  for (const std::size_t length : {whole.size() - 1, whole.size() - 9}) {
    const FileGlobals cut = list(folder.write("cut.pkl", whole.substr(0, length)));
    REQUIRE(cut.pickles.size() == 1);
    REQUIRE(cut.pickles[0].fault.has_value());
    CHECK(cut.pickles[0].fault->code == ErrorCode::corrupt);
    CHECK(lines(cut) == plain);
  }
}

TEST_CASE_FIXTURE(Fixture, "lists the five pickles of the stream of before torch 1.6") {
  const std::string magic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s;
  const std::string stream =
      magic + "\x80\x02M\xe9\x03." + "\x80\x02}." + unknown + "\x80\x02]." + "\x80\x02\xff bytes";
  const FileGlobals globals = list(folder.write("legacy.pt", stream));
  CHECK(globals.format == Format::torch_legacy);
  CHECK(globals.pickles.size() == 5);
  CHECK(globals.pickles[0].bytes_behind == 0);
  CHECK(lines(globals) == Lines{"fractions.Fraction unknown x1"});
}

TEST_CASE_FIXTURE(Fixture, "finds a pickle of more than a megabyte in a bare file") {
  const std::string large = "\x80\x02(" + std::string(3 << 20, 'N') + "lcposix\nsystem\n\x86.";
  CHECK(lines(list(folder.write("large.pkl", large))) == Lines{"posix.system harmful x1"});
}

TEST_CASE_FIXTURE(Fixture, "finds the pickle before an archive, which torch would take") {
  const std::string inner = test::read_file(archive({{"data.pkl", harmless}}));
  const FileGlobals globals = list(folder.write("both.pt", evil + inner));
  CHECK(globals.format == Format::torch_zip);
  CHECK(lines(globals) ==
        Lines{"data.pkl: collections.OrderedDict torch_safe x1", "posix.system harmful x1"});
}

TEST_CASE_FIXTURE(Fixture, "a GGUF file has none, but for one that is a pickle as well") {
  const std::string header = "GGUF\3\0\0\0\0"s;  // a real number to a pickler
  const FileGlobals none = list(folder.write("model.gguf", header + std::string(15, '\0')));
  CHECK(none.format == Format::gguf);
  CHECK(none.pickles.empty());
  const FileGlobals both = list(folder.write("both.gguf", header + evil.substr(2)));
  CHECK(both.format == Format::gguf);
  CHECK(lines(both) == Lines{"posix.system harmful x1"});
}

TEST_CASE_FIXTURE(Fixture, "keeps within the limits, and says so") {
  OpenOptions options;
  options.limits.pickle_bytes = 20;
  const FileGlobals globals = list(archive({{"data.pkl", evil}}), options);
  CHECK(globals.pickles[0].fault->code == ErrorCode::limit_exceeded);
  options = {};
  options.limits.base_memory = 1024;
  std::string many = "\x80\x02(";
  for (int i = 0; i < 1000; ++i) many += "cm\nname" + std::to_string(i) + "\n0";
  const FileGlobals named = list(archive({{"data.pkl", many + "t."}}), options);
  CHECK(named.pickles[0].fault->code == ErrorCode::limit_exceeded);
  CHECK(named.pickles[0].globals.size() < 1000);
}

TEST_CASE("torch_safe refuses what torch does not allow and nobody else did") {
  Fixture fixture;
  const auto path = fixture.archive({{"data.pkl", unknown}, {"version", "3\n"}});
  const Checkpoint opaque = test::opened(path);
  CHECK(!opaque.info().names_torch_safe_only);
  OpenOptions options;
  options.globals = Globals::torch_safe;
  const auto refused = Checkpoint::open(path, options);
  CHECK_FAILS(refused, ErrorCode::unsafe_pickle,
              "data.pkl: the pickle names fractions.Fraction, which torch does not allow by "
              "default; if you trust it, allow it by adding \"fractions.Fraction\" to safe_globals "
              "(--allow-global)");
  CHECK(refused.error().file_offset == fixture.list(path).pickles[0].globals[0].file_offset);
  options.safe_globals = {"fractions.Decimal"};
  CHECK(!Checkpoint::open(path, options));
  options.safe_globals.insert("fractions.Fraction");
  CHECK(Checkpoint::open(path, options));
}

TEST_CASE("torch_safe opens what torch opens") {
  OpenOptions options;
  options.globals = Globals::torch_safe;
  const Checkpoint checkpoint = test::opened(test::data / "state_dict.pt", options);
  CHECK(checkpoint.info().names_torch_safe_only);
  CHECK(!Checkpoint::open(test::data / "module.pt", options));
}

TEST_CASE("torch_safe does not let harmful names pass that are allowed") {
  Fixture fixture;
  const auto path = fixture.archive({{"data.pkl", evil}, {"version", "3\n"}});
  OpenOptions options;
  options.globals = Globals::torch_safe;
  options.safe_globals = {"posix.system"};
  CHECK_FAILS(Checkpoint::open(path, options), ErrorCode::unsafe_pickle, "posix.system");
}
