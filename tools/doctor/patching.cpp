#include "tools/doctor/patching.hpp"

#include <optional>

#include "tools/doctor/python_answer.hpp"
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

}  // namespace weightmap::cli::doctor
