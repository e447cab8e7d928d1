#include "tools/doctor/python_facts.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "tools/support/text.hpp"

namespace weightmap::cli::doctor {
namespace {

// Prints "on"; or "off", the start file of the package (nothing if it is missing), and the first
// folder whose .pth files this Python reads.
constexpr std::string_view patch_program =
    "import importlib.util, os, site, sys\n"
    "if \"weightmap._patch_at_start\" in sys.modules: print(\"on\")\n"
    "else:\n"
    "  found = importlib.util.find_spec(\"weightmap\")\n"
    "  where = os.path.dirname(os.path.dirname(os.path.realpath(found.origin))) if found else "
    "\"\"\n"
    "  print(\"off\", where and os.path.join(where, \"weightmap_patch.pth\"),\n"
    "        site.getsitepackages()[0], sep=\"\\n\")\n";

// Is followed by names of packages, and prints those that have bytecode of less than half of their
// modules.
constexpr std::string_view bytecode_program =
    "import importlib.util, os, sys\n"
    "def sources(name):\n"
    "  found = importlib.util.find_spec(name)\n"
    "  for folder in found and found.submodule_search_locations or ():\n"
    "    for where, _, files in os.walk(folder):\n"
    "      yield from (os.path.join(where, file) for file in files if file.endswith(\".py\"))\n"
    "def lacks(name):\n"
    "  compiled = [os.path.exists(importlib.util.cache_from_source(each)) for each in "
    "sources(name)]\n"
    "  return 2 * sum(compiled) < len(compiled)\n"
    "print(\", \".join(filter(lacks, sys.argv[1:])))\n";

// Runs a Python program without single quotes under WEIGHTMAP_PATCH=1 and returns what it printed
// on standard output; nothing if it could not be run, or failed.
std::optional<std::string> python_answer(const std::string& python, std::string_view program,
                                         const std::string& arguments = {}) {
  const std::string command = "WEIGHTMAP_PATCH=1 " + quoted(python) + " -c '" +
                              std::string(program) + "'" + arguments + " 2>/dev/null";
  std::FILE* const output = ::popen(command.c_str(), "r");
  if (output == nullptr) return std::nullopt;
  std::string text;
  std::array<char, 4096> piece;
  while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), output))
    text.append(piece.data(), count);
  if (::pclose(output) != 0) return std::nullopt;
  return text;
}

// Removes one line from the front of the text and returns it.
std::string next_line(std::string& text) {
  const std::size_t end = text.find('\n');
  std::string line = text.substr(0, end);
  text.erase(0, end == std::string::npos ? end : end + 1);
  return line;
}

}  // namespace

Finding patching(const std::string& python) {
  std::optional<std::string> answer = python_answer(python, patch_program);
  const std::string state = answer ? next_line(*answer) : "";
  const std::string name = printable(python);
  if (state == "on") return {"patching", Finding::good, "WEIGHTMAP_PATCH reaches " + name};
  if (state != "off") return {"patching", Finding::unknown, name + " could not be run"};
  const std::string start_file = next_line(*answer);
  const std::string folder = next_line(*answer);
  if (start_file.empty())
    return {"patching", Finding::slow, name + " has no weightmap",
            quoted(python) + " -m pip install weightmap"};
  return {"patching", Finding::slow,
          "WEIGHTMAP_PATCH does not reach " + name +
              ": weightmap_patch.pth is in no folder whose .pth files it reads",
          "cp " + quoted(start_file) + " " + quoted(folder)};
}

std::string lazy_version(const std::string& python) {
  std::optional<std::string> answer = python_answer(
      python,
      "import sys\n"
      "if getattr(sys, \"get_lazy_imports\", str)() == \"normal\": print(sys.version.split()[0])");
  return answer ? next_line(*answer) : "";
}

std::string packages_without_bytecode(const std::string& python,
                                      const std::set<std::string>& packages) {
  std::string names;
  for (const std::string& package : packages)
    if (std::ranges::all_of(package, [](unsigned char c) { return std::isalnum(c) || c == '_'; }))
      names += " " + package;
  std::optional<std::string> answer = python_answer(python, bytecode_program, names);
  return answer ? next_line(*answer) : "";
}

// Its answer is the state, what is found and the advice, a line for each.
std::optional<Finding> torch_way(const std::string& python) {
  std::optional<std::string> answer =
      python_answer(python, "from weightmap._torch import way; way.tell()");
  if (!answer) return std::nullopt;
  const Finding::State state = next_line(*answer) == "good" ? Finding::good : Finding::slow;
  const std::string found = printable(next_line(*answer));
  return Finding{"torch", state, found, next_line(*answer)};
}

}  // namespace weightmap::cli::doctor
