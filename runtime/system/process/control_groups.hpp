// Finds the control groups that this process is subject to (cgroups(7)).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace weightmap::os {

struct ControlGroup {
  std::string name;  // "/user.slice"; "/" for the topmost
  std::filesystem::path folder;
  bool is_version_2;
};

// Returns its own group and all above it, of version 2 and of version 1's hierarchy of this
// controller ("memory"), each hierarchy from its own group upwards. `root` contains proc and
// sys/fs/cgroup.
std::vector<ControlGroup> control_groups(std::string_view controller,
                                         const std::filesystem::path& root);

}  // namespace weightmap::os
