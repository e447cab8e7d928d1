// What a file lies on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/os/file/file.hpp"

namespace weightmap::os {

struct Mount {
  std::string file_system;  // as the mount table calls it: "ext4", "nfs4", "fuse.sshfs"
  std::string number;       // of the device: "259:1"; of one that is none "0:45"
  std::string device;       // what is mounted: "/dev/sda1", "host:/models"
};

// nullopt before Linux 5.8, and without /proc.
std::optional<Mount> mount_of(const File& file);
// The line of a mount table. `root` is where proc is looked for; tests have one of their own.
std::optional<Mount> find_mount(std::uint64_t id, const std::filesystem::path& root = "/");

// The setting of how far the system reads ahead there, in KiB: a file in /sys. Empty: none.
std::filesystem::path read_ahead_setting(const Mount& mount,
                                         const std::filesystem::path& root = "/");

}  // namespace weightmap::os
