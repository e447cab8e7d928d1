// The file system and device of a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/system/file/file.hpp"

namespace weightmap::os {

struct Mount {
  std::string file_system;   // the mount table's name: "ext4", "nfs4", "fuse.sshfs"
  std::string number;        // of the device: "259:1"; "0:45" without a device
  std::string device;        // the mounted device: "/dev/sda1", "host:/models"
  std::string place = {};    // the path that it is mounted at
  std::string options = {};  // of the file system
  std::uint64_t id = 0;
};

// Reads a mount table, /proc/PID/mountinfo (proc(5)). Lines that are none are left out, and all of
// a process that has ended.
std::vector<Mount> read_mounts(const std::filesystem::path& table);

// Returns true for the name of a file system whose files come from a server or a daemon, so that
// each read may wait for it.
bool is_remote(std::string_view file_system) noexcept;

// Returns nullopt before Linux 5.8, and without /proc.
std::optional<Mount> mount_of(const File& file);
std::optional<Mount> mount_of(const std::filesystem::path& path);
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
// Returns the device that /proc/PID/maps has of files there, where stat() may have another
// (overlays).
std::optional<std::uint64_t> mapped_device_of(const std::filesystem::path& path);

// Returns the names of the file systems on a device, of which an overlay has more, those of layers
// that are given by a whole path. Asks no file system anything, which may not answer. Empty: the
// mount table of `root` has no such device.
std::vector<std::string> file_systems_of(const std::string& number,
                                         const std::filesystem::path& root = "/");

// True for FUSE and virtiofs, where an open drops what is cached of the file for everybody, unless
// the server says otherwise (FOPEN_KEEP_CACHE), and for an overlay with a layer of them. Asks the
// file system, and opens nothing.
bool open_may_drop_cache(const std::filesystem::path& path);
// The same of several files, for which the mount table is read once for each mount.
class MayDropCache {
 public:
  bool operator()(const std::filesystem::path& path);

 private:
  std::map<std::uint64_t, bool> known_;  // by the number of an overlay's mount
};

// Returns the file of a layer, of those that are given by a whole path, that an overlay shows here.
std::optional<std::filesystem::path> file_below(const std::filesystem::path& path);

// True for overlayfs, whose files are those of other file systems: cachestat() counts none of their
// pages, and a chmod can put another file in the place of one (a copy-up) that only the change time
// tells from it.
bool is_overlay(const File& file) noexcept;

// Returns the file in /sys with the read-ahead of the device in KiB. Empty: none.
std::filesystem::path read_ahead_setting(const Mount& mount,
                                         const std::filesystem::path& root = "/");

}  // namespace weightmap::os
