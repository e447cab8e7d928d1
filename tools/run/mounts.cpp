#include "tools/run/mounts.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace weightmap::cli::start {
namespace {

constexpr std::array<std::string_view, 22> made_up = {
    "autofs",     "binfmt_misc", "bpf",      "cgroup",  "cgroup2",   "configfs",
    "debugfs",    "devpts",      "efivarfs", "fusectl", "hugetlbfs", "mqueue",
    "nfsd",       "nsfs",        "proc",     "pstore",  "resctrl",   "rpc_pipefs",
    "securityfs", "selinuxfs",   "sysfs",    "tracefs"};

}  // namespace

std::vector<os::Mount> mounts_with_files(pid_t process) {
  std::vector<os::Mount> mounts =
      os::read_mounts("/proc/" + std::to_string(process) + "/mountinfo");
  std::erase_if(mounts, [](const os::Mount& mount) {
    return std::ranges::find(made_up, mount.file_system) != made_up.end();
  });
  return mounts;
}

}  // namespace weightmap::cli::start
