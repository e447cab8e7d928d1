#include "runtime/system/process/processor_quota.hpp"

#include <algorithm>
#include <fstream>
#include <string>

#include "runtime/base/bytes/number.hpp"
#include "runtime/system/process/control_groups.hpp"

namespace weightmap::os {

bool has_processor_quota(const std::filesystem::path& root) {
  return std::ranges::any_of(control_groups("cpu", root), [](const ControlGroup& group) {
    // "200000 100000" or "max 100000"; "200000" or "-1".
    std::ifstream file(group.folder / (group.is_version_2 ? "cpu.max" : "cpu.cfs_quota_us"));
    std::string quota;
    return file >> quota && bytes::number(quota).has_value();
  });
}

}  // namespace weightmap::os
