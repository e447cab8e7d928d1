// Who has a checkpoint mapped, and what that costs in memory.
//
//   auto report = weightmap::processes({"model.pt"});
//   for (const weightmap::MappedCheckpoint& mapped : report->mapped)
//     mapped.pss_bytes;                             // the sum is what the machine spends
//
// All sizes are bytes, all figures those of one moment: a process that ends while it is looked at
// is left out. Nothing is read but /proc and, of files whose kind is asked for, their first bytes.
// May be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Which version of a file a process is on.
enum class MappedVersion : std::uint8_t {
  current,   // the one that has the name now; also memory without a name (a staged copy)
  replaced,  // another file has taken its name
  deleted,   // nothing has its name any more
};
// "current", "replaced", "deleted".
WEIGHTMAP_API std::string_view to_string(MappedVersion version) noexcept;

// What one process has mapped of one file, through all its mappings of it.
struct MappedCheckpoint {
  std::int64_t process = 0;
  std::string command;  // its words with blanks between; any bytes
  std::string file;     // the path when it was mapped; "/memfd:NAME" for memory without one
  MappedVersion version = MappedVersion::current;
  std::uint64_t device = 0;  // of the file, with `inode` its identity
  std::uint64_t inode = 0;
  std::uint64_t file_bytes = 0;  // up to the last mapped page where the file itself is out of reach

  bool has_shared = false;   // a shared mapping
  bool has_private = false;  // a private one
  bool writable = false;     // one of them

  std::uint64_t mapped_bytes = 0;    // of address space
  std::uint64_t resident_bytes = 0;  // RSS: in the page table
  // PSS: each of them divided by the number of processes that have it.
  std::uint64_t pss_bytes = 0;
  std::uint64_t anonymous_bytes = 0;    // of resident_bytes, copied by writing: this process's own
  std::uint64_t huge_mapped_bytes = 0;  // of resident_bytes, mapped 2 MiB at a time
  std::uint64_t locked_bytes = 0;       // of pss_bytes, what may not leave memory
};

struct ProcessesReport {
  std::vector<MappedCheckpoint> mapped;    // by file, then process
  std::uint64_t unreadable_processes = 0;  // that the system does not let us look at
};

// The processes that have one of `files` mapped: by what is behind the name now, whatever it was
// called when it was mapped, and by the name, so that older files that have lost it are found.
//
// Without `files`, those that have any checkpoint mapped: a file that begins as torch.save() begins
// one, a staged copy, or, where a file cannot be looked at, a name that ends with .pt, .pth, .ckpt
// or .bin.
//
// What WarmMethod::direct read and what another process copied out of a file is not told: it is
// memory without a name. Fails with io if there is no /proc.
WEIGHTMAP_API Result<ProcessesReport> processes(
    const std::vector<std::filesystem::path>& files = {});

}  // namespace weightmap
