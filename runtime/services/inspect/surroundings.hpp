// The storage under a checkpoint, and the machine's facilities for loading it.
//
//   const weightmap::Surroundings around = weightmap::surroundings(checkpoint);
//   around.files[0].file_system;  // "nfs4"
//
// `weightmap doctor` uses this. All sizes are in bytes; all figures are of now. No file content
// is read. May be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

// One of the files of a checkpoint.
struct FileSurroundings {
  std::filesystem::path path = {};  // absolute; empty: opened by descriptor
  std::uint64_t bytes = 0;
  // The mount table's name: "ext4", "nfs4", "fuse.sshfs". Empty if the system does not report it,
  // such as before Linux 5.8.
  std::string file_system = {};
  std::string device = {};  // the mounted device: "/dev/sda1", "host:/models"; or empty
  // The device's read-ahead, and the file in /sys that sets it in KiB. Unset if there is none.
  std::optional<std::uint64_t> read_ahead_bytes = {};
  std::filesystem::path read_ahead_setting = {};
  // Extents on the disk; nullopt if the file system does not report them.
  std::optional<std::uint64_t> extents = {};
};

struct Surroundings {
  std::vector<FileSurroundings> files = {};  // those of Checkpoint::source() that are files; of a
                                             // checkpoint in memory none
  std::string kernel = {};                   // its release; empty if the system does not report it
  std::uint64_t page_bytes = 0;
  std::uint64_t huge_page_bytes = 0;   // 0: none
  std::string huge_page_setting = {};  // "always", "madvise", "never"; empty: none
  // The memory that this process may still use, including page cache that can be dropped, and the
  // limit that determines it: "MemAvailable", "memory.max of /pod". nullopt if unknown.
  std::optional<std::uint64_t> available_bytes = {};
  std::string available_reason = {};
  // Facilities of the kernel that work for this process, as tested.
  bool has_populate_read = false;  // warm-ups can map pages as they read them
  bool has_cachestat = false;      // the kernel can count cached pages
};

WEIGHTMAP_API Surroundings surroundings(const Checkpoint& checkpoint);

// Returns true if files of FileSurroundings::file_system come from a server or a daemon, so that
// each page fault may wait for it.
WEIGHTMAP_API bool is_remote(std::string_view file_system) noexcept;

}  // namespace weightmap
