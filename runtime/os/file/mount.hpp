// The file system and device of a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/os/file/file.hpp"

namespace weightmap::os {

struct Mount {
  std::string file_system;  // the mount table's name: "ext4", "nfs4", "fuse.sshfs"
  std::string number;       // of the device: "259:1"; "0:45" without a device
  std::string device;       // the mounted device: "/dev/sda1", "host:/models"
};

// Returns nullopt before Linux 5.8, and without /proc.
std::optional<Mount> mount_of(const File& file);
// Finds the line of a mount table. `root` contains proc; tests have one of their own.
std::optional<Mount> find_mount(std::uint64_t id, const std::filesystem::path& root = "/");

// A mount of overlayfs.
struct Overlay {
  std::string number;  // of the device
  // From the upper one down. Some begin at the folder in which the mount was made, if it was so.
  std::vector<std::filesystem::path> layers;
};
// Finds those of a mount table. Layers end before one with characters that the table escapes.
std::vector<Overlay> overlays(const std::filesystem::path& root = "/");

// "0:45", as mount tables have it.
std::string number_of_device(std::uint64_t device);

// Returns the name of the file system on a device, without asking that file system anything, which
// may not answer. Empty: the mount table of `root` has no such device.
std::string file_system_of(std::uint64_t device, const std::filesystem::path& root = "/");

// True for FUSE and virtiofs, where an open drops what is cached of the file for everybody, unless
// the server says otherwise (FOPEN_KEEP_CACHE). Asks the file system, and opens nothing.
bool open_may_drop_cache(const std::filesystem::path& path) noexcept;

// True for overlayfs, whose files are those of other file systems: cachestat() counts none of their
// pages, and a chmod can put another file in the place of one (a copy-up) that only the change time
// tells from it.
bool is_overlay(const File& file) noexcept;

// Returns the file in /sys with the read-ahead of the device in KiB. Empty: none.
std::filesystem::path read_ahead_setting(const Mount& mount,
                                         const std::filesystem::path& root = "/");

}  // namespace weightmap::os
