#include "tools/doctor/patching.hpp"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include "tools/support/text.hpp"

namespace weightmap::cli::doctor {
namespace {

// Prints "on"; or "off", the start file of the package (nothing if it is missing), and the first
// folder whose .pth files this Python reads.
constexpr std::string_view program =
    "import importlib.util, os, site, sys\n"
    "if \"weightmap._patch_at_start\" in sys.modules: print(\"on\")\n"
    "else:\n"
    "  found = importlib.util.find_spec(\"weightmap\")\n"
    "  where = os.path.dirname(os.path.dirname(os.path.realpath(found.origin))) if found else "
    "\"\"\n"
    "  print(\"off\", where and os.path.join(where, \"weightmap_patch.pth\"),\n"
    "        site.getsitepackages()[0], sep=\"\\n\")\n";

struct Answer {
  int status = -1;
  std::string text;
};

Answer ask(const std::string& python) {
  Answer answer;
  const std::string command =
      "WEIGHTMAP_PATCH=1 " + quoted(python) + " -c '" + std::string(program) + "' 2>/dev/null";
  std::FILE* const output = ::popen(command.c_str(), "r");
  if (output == nullptr) return answer;
  std::array<char, 4096> piece;
  while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), output))
    answer.text.append(piece.data(), count);
  answer.status = ::pclose(output);
  return answer;
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
  Answer answer = ask(python);
  const std::string state = answer.status == 0 ? next_line(answer.text) : "";
  const std::string name = printable(python);
  if (state == "on") return {"patching", Finding::good, "WEIGHTMAP_PATCH reaches " + name};
  if (state != "off") return {"patching", Finding::unknown, name + " could not be run"};
  const std::string start_file = next_line(answer.text);
  const std::string folder = next_line(answer.text);
  if (start_file.empty())
    return {"patching", Finding::slow, name + " has no weightmap",
            quoted(python) + " -m pip install weightmap"};
  return {"patching", Finding::slow,
          "WEIGHTMAP_PATCH does not reach " + name +
              ": weightmap_patch.pth is in no folder whose .pth files it reads",
          "cp " + quoted(start_file) + " " + quoted(folder)};
}

}  // namespace weightmap::cli::doctor
