#include "runtime/system/process/control_groups.hpp"

#include <fstream>

namespace weightmap::os {
namespace {

namespace fs = std::filesystem;

void add_upwards(std::vector<ControlGroup>& groups, const fs::path& mount, fs::path group,
                 bool is_version_2) {
  for (; group.has_relative_path(); group = group.parent_path())
    groups.push_back({group.string(), mount / group.relative_path(), is_version_2});
  groups.push_back({"/", mount, is_version_2});
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  const std::string wanted = "," + std::string(controller) + ",";
  std::vector<ControlGroup> groups;
  std::ifstream lines(root / "proc/self/cgroup");
  // "0::/user.slice" for version 2, "9:memory:/docker/1f" for version 1.
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path group = line.substr(second + 1);
    if (line.compare(0, first, "0") == 0 && controllers == ",,")
      add_upwards(groups, mounts, group, true);
    else if (controllers.find(wanted) != std::string::npos)
      add_upwards(groups, mounts / controller, group, false);
  }
  return groups;
}

}  // namespace weightmap::os
