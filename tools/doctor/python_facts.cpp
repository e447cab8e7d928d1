#include "tools/doctor/python_facts.hpp"

#include <array>
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

// Runs a Python program without single quotes under WEIGHTMAP_PATCH=1 and returns what it printed
// on standard output; nothing if it could not be run, or failed.
std::optional<std::string> python_answer(const std::string& python, std::string_view program) {
  const std::string command =
      "WEIGHTMAP_PATCH=1 " + quoted(python) + " -c '" + std::string(program) + "' 2>/dev/null";
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
