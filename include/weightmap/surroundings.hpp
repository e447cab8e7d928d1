// What a checkpoint lies on, and what the machine offers for a start with it.
//
//   const weightmap::Surroundings around = weightmap::surroundings(checkpoint);
//   around.files[0].file_system;  // "nfs4"
//
// `weightmap doctor` draws its conclusions from this. All sizes are in bytes; all figures are of
// one moment. Nothing of the files is read. May be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"

namespace weightmap {

// One of the files of a checkpoint.
struct FileSurroundings {
  std::filesystem::path path = {};  // absolute; empty: opened by descriptor
  std::uint64_t bytes = 0;
  // As the mount table calls it: "ext4", "nfs4", "fuse.sshfs". Empty where the system does not
  // tell, before Linux 5.8 for one.
  std::string file_system = {};
  std::string device = {};  // what is mounted: "/dev/sda1", "host:/models"; or empty
  // How far the system reads ahead there, and the file in /sys that sets it, in KiB. nullopt and
  // empty where there is none that can be found.
  std::optional<std::uint64_t> read_ahead_bytes = {};
  std::filesystem::path read_ahead_setting = {};
  // Pieces on the disk; nullopt where the file system does not tell.
  std::optional<std::uint64_t> extents = {};
};

struct Surroundings {
  std::vector<FileSurroundings> files = {};  // those of Checkpoint::source() that are no copies
  std::string kernel = {};                   // its release; empty where the system does not tell
  std::uint64_t page_bytes = 0;
  std::uint64_t huge_page_bytes = 0;   // 0: none
  std::string huge_page_setting = {};  // "always", "madvise", "never"; empty: none
  // What this process may still fill, page cache that could be dropped included, and what says so:
  // "MemAvailable", "memory.max of /pod". nullopt where the system does not tell.
  std::optional<std::uint64_t> available_bytes = {};
  std::string available_reason = {};
  // What the kernel does for this process, as trying it told.
  bool has_populate_read = false;  // warm-ups map what they read
  bool has_cachestat = false;      // the kernel counts what is cached
};

WEIGHTMAP_API Surroundings surroundings(const Checkpoint& checkpoint);

// Returns whether files of FileSurroundings::file_system come from a server or a daemon, for which
// each page fault may wait.
WEIGHTMAP_API bool is_remote(std::string_view file_system) noexcept;

}  // namespace weightmap
