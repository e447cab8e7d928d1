// Tells whether the processor time of this process is rationed.
#pragma once

#include <filesystem>

namespace weightmap::os {

// Returns true if a control group of this process has a quota of processor time, as containers with
// a limit of processors have (cpu.max of version 2, cpu.cfs_quota_us of version 1). `root` contains
// proc and sys/fs/cgroup; tests have one of their own.
bool has_processor_quota(const std::filesystem::path& root = "/");

}  // namespace weightmap::os
