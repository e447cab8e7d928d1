#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tools/doctor/costly_imports.hpp"
#include "tools/doctor/import_times.hpp"

namespace weightmap::cli::doctor {
namespace {

const std::string heading_line = "import time: self [us] | cumulative | imported package\n";

// In milliseconds, as CPython 3.7 to 3.15 writes it.
std::string import_line(int own, int all, int depth, const std::string& name) {
  return fmt::format("import time: {:9} | {:10} | {:{}}{}\n", own * 1000, all * 1000, "", depth * 2,
                     name);
}

std::string importer_of(const ImportTimes& times, std::size_t module) {
  const auto importer = times.modules()[module].importer;
  return importer ? times.modules()[*importer].name : "";
}

TEST_CASE("lines about imports are taken out, and others are left") {
  ImportTimes times;
  CHECK(times.take("before\n" + heading_line + import_line(1, 1, 1, "b") + "between\n" +
                   import_line(2, 3, 0, "a") + "50 %|#  |") == "before\nbetween\n50 %|#  |");
  CHECK(times.interpreters() == 1);
  CHECK(times.count() == 2);
  CHECK(times.seconds() == doctest::Approx(0.003));
  REQUIRE(times.modules().size() == 2);
  CHECK(times.modules()[1].seconds == doctest::Approx(0.003));
  CHECK(times.modules()[1].own_seconds == doctest::Approx(0.002));
  CHECK(importer_of(times, 0) == "a");
  CHECK(importer_of(times, 1).empty());
}

TEST_CASE("a line about an import may come in pieces, and behind a bar without an end") {
  ImportTimes times;
  std::string others;
  for (const char letter : "50 %|##" + import_line(1, 1, 0, "a") + "more\nimport")
    others += times.take({&letter, 1});
  CHECK(others == "50 %|##more\n");
  CHECK(times.take_rest() == "import");
  CHECK(times.take_rest().empty());
  CHECK(times.count() == 1);
}

TEST_CASE("what only looks like a line about an import is the program's own") {
  for (const std::string line :
       {"import time: 3 s\n", "import time: \n", "import time:  1 | 2\n", "import time: 1 | 2 | \n",
        "import time: 1 | 2 |    \n", "import time: 1 | x | a\n", "import time: x | 1 | a\n",
        "import time: 99999999999999999999 | 1 | a\n", "import time: cached    | cached     | a\n",
        "import time: self [us]\n"}) {
    CAPTURE(line);
    ImportTimes times;
    CHECK(times.take(line) == line);
    CHECK(times.count() == 0);
  }
}

TEST_CASE("a line without an end is awaited no longer than the longest one") {
  ImportTimes times;
  const std::string line = "import time: 1 | 1 | " + std::string(1100, 'a');
  CHECK(times.take(line) == line);
  CHECK(times.take(line + "\n") == line + "\n");
  CHECK(times.count() == 0);
}

TEST_CASE("a time below 0, as of threads, is none") {
  ImportTimes times;
  times.take("import time: -5 | 7 | a\n");
  CHECK(times.seconds() == 0);
  CHECK(times.modules().at(0).seconds == doctest::Approx(7e-6));
}

TEST_CASE("modules that are too many are counted and not kept") {
  ImportTimes times;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += import_line(1, 1, 0, "a");
  for (int i = 0; i < 66; ++i) times.take(text);
  CHECK(times.count() == 66'000);
  CHECK(times.seconds() == doctest::Approx(66));
  CHECK(times.modules().size() == 65'536);
}

TEST_CASE("of interpreters that write at once each module has those for which it had the time") {
  ImportTimes times;
  times.take(import_line(50, 50, 1, "slow") + import_line(1, 1, 1, "fast") +
             import_line(2, 3, 0, "short") + import_line(10, 60, 0, "long"));
  CHECK(importer_of(times, 0) == "long");
  CHECK(importer_of(times, 1) == "short");
}

// What takes 1 s: p (100 ms) imports p.q (10 ms), which imports p.r (10 ms), and that x (600 ms),
// which imports y (280 ms).
ImportTimes example() {
  ImportTimes times;
  times.take(heading_line + import_line(280, 280, 4, "y") + import_line(600, 880, 3, "x") +
             import_line(10, 890, 2, "p.r") + import_line(10, 900, 1, "p.q") +
             import_line(100, 1000, 0, "p"));
  return times;
}

TEST_CASE("costly is what takes much without what is costly itself") {
  const std::vector<CostlyImport> costly = costly_imports(example());
  REQUIRE(costly.size() == 3);
  CHECK(costly[0].module == "p");
  CHECK(costly[0].seconds == doctest::Approx(1));
  CHECK(costly[0].importers.empty());
  CHECK(costly[1].module == "x");
  CHECK(costly[1].importers == std::vector<std::string>{"p", "p.q", "p.r"});
  CHECK(costly[2].importers == std::vector<std::string>{"p", "p.q", "p.r", "x"});
  CHECK(lines_about(example()) ==
        std::vector<std::string>{
            "Its imports took 1.0 s of the second start, of 5 modules in 1 interpreter. What costs "
            "most, with what it imports itself:",
            "    1000 ms  p", "     880 ms    x (by p.q > p.r)", "     280 ms      y"});
}

TEST_CASE("of importers in one package the first and the last are named") {
  ImportTimes times;
  times.take(import_line(500, 500, 6, "x") + import_line(0, 500, 5, "b.d") +
             import_line(0, 500, 4, "a.4") + import_line(0, 500, 3, "a.3") +
             import_line(0, 500, 2, "a.2") + import_line(0, 500, 1, "a.1") +
             import_line(0, 500, 0, "a\x1b"));
  CHECK(lines_about(times).back() == "     500 ms  x (by a\\x1B > a.1 > ... > a.4 > b.d)");
}

TEST_CASE("many small imports of a package count for it, the longest first") {
  ImportTimes times;
  times.take(import_line(100, 100, 0, "other"));
  std::string text;
  for (int i = 0; i < 50; ++i) text += import_line(2, 2, 1, "many.part");
  times.take(text + import_line(10, 110, 0, "many") + import_line(200, 200, 0, "most"));
  const std::vector<CostlyImport> costly = costly_imports(times);
  REQUIRE(costly.size() == 3);
  CHECK(costly[0].module == "most");
  CHECK(costly[1].module == "many");
}

TEST_CASE("imports that take no time, or were not told, are not listed") {
  ImportTimes none;
  CHECK(lines_about(none) ==
        std::vector<std::string>{"No Python told of its imports: the command runs none, or one "
                                 "that ignores its environment (-E, -I)."});
  none.take(import_line(0, 0, 0, "a"));
  CHECK(costly_imports(none).empty());
  none.take(import_line(40, 40, 0, "b"));
  CHECK(lines_about(none) ==
        std::vector<std::string>{
            "Its imports took 0.04 s: there is nothing in them to make shorter."});
}

std::string advised(const std::vector<std::string>& command, const ImportMeans& means = {}) {
  std::string text;
  for (const std::string& sentence : import_advice(command, 2.5, means)) text += sentence + "\n";
  return text;
}

TEST_CASE("advice is of what can be had, with what it can gain") {
  const std::string forks =
      "Workers that are forked from a process that has imported start without imports, each up to "
      "2.5 s sooner (examples/serving, also for uvicorn).\n";
  CHECK(advised({"serve"}) == forks);
  CHECK(advised({"my serve"}, {.snapshots = true, .lazy_python = "3.15.2"}) ==
        "`weightmap run --snapshot FOLDER -- 'my serve' ...` restores what has started, without "
        "imports: up to 2.5 s sooner.\n" +
            forks +
            "Python 3.15.2 can leave out what is never used, by `lazy import`, or everywhere by "
            "PYTHON_LAZY_IMPORTS=all, which torch 2.15 does not survive (docs/serving.md): up to "
            "2.5 s sooner.\n");
  CHECK(advised({"serve"}, {.uncompiled = "torch"}) ==
        "Most modules of torch have no bytecode, so that each start compiles those that it "
        "imports: run `python -m compileall` on their folders once, or do without "
        "PYTHONDONTWRITEBYTECODE and `pip install --no-compile`.\n" +
            forks);
  CHECK(import_advice({"serve"}, 0.09, {.snapshots = true}).empty());
}

TEST_CASE("nobody is told to do what is done already") {
  CHECK(advised({"/venv/bin/gunicorn", "app"}) ==
        "With `--preload`, unless its settings have `preload_app` already, gunicorn imports once, "
        "before it forks its workers, and each further one starts up to 2.5 s sooner.\n");
  CHECK(advised({"python", "-m", "gunicorn", "--preload", "app"}).empty());
  CHECK(advised({"python", "-X", "lazy_imports=all", "gunicorn", "--preload"},
                {.lazy_python = "3.15.2"})
            .empty());
}

}  // namespace
}  // namespace weightmap::cli::doctor
