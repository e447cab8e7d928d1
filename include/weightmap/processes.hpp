// Which processes have a checkpoint mapped, and what that costs in memory.
//
//   auto report = weightmap::processes({"model.pt"});
//   for (const weightmap::MappedCheckpoint& mapped : report->mapped)
//     mapped.pss_bytes;                             // the sum is what the machine spends
//
// All sizes are in bytes. A process that ends while it is looked at is left out. Nothing is read
// but /proc and, of files that may be checkpoints, their first bytes. May be called from any
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Which version of a file a process has mapped.
enum class MappedVersion : std::uint8_t {
  current,   // the one that has the name now; also memory without a name, such as a staged copy
  replaced,  // another file has taken its name
  deleted,   // nothing has its name any more
};
// Returns "current", "replaced" or "deleted".
WEIGHTMAP_API std::string_view to_string(MappedVersion version) noexcept;

// What one process has mapped of one file, through all its mappings of it.
struct MappedCheckpoint {
  std::int64_t process = 0;
  std::string command;  // its arguments, joined by blanks; may hold any bytes
  // The path when it was mapped; of a blob in huggingface_hub's cache a link in a snapshot that
  // leads there; "/memfd:NAME" for memory without a path.
  std::string file;
  MappedVersion version = MappedVersion::current;
  std::uint64_t device = 0;  // of the file; together with `inode` its identity
  std::uint64_t inode = 0;
  std::uint64_t file_bytes = 0;  // where the file is out of reach: up to the last mapped page

  bool has_shared = false;   // it has a shared mapping of the file
  bool has_private = false;  // it has a private one
  bool writable = false;     // one of its mappings is writable

  std::uint64_t mapped_bytes = 0;    // of address space
  std::uint64_t resident_bytes = 0;  // RSS: in the page table
  // PSS: the resident pages, each divided by the number of processes that have it mapped.
  std::uint64_t pss_bytes = 0;
  std::uint64_t anonymous_bytes = 0;    // of resident_bytes, private copies made by writing
  std::uint64_t huge_mapped_bytes = 0;  // of resident_bytes, mapped 2 MiB at a time
  std::uint64_t locked_bytes = 0;       // of pss_bytes, what may not leave memory
};

struct ProcessesReport {
  std::vector<MappedCheckpoint> mapped;    // ordered by file, then by process
  std::uint64_t unreadable_processes = 0;  // those that this process may not look at
};

// Returns the processes that have one of `files` mapped. A mapping counts if it is of the file that
// has the name now, whatever that was called when it was mapped, or of an older file that had this
// name then. An index of shards or a folder stands for all files of its checkpoint.
//
// Without `files`, returns the processes that have any checkpoint mapped: a file that begins as
// torch.save() begins one, or as safetensors, a staged copy, or, where a file cannot be looked at,
// one whose name ends with .pt, .pth, .ckpt, .bin or .safetensors.
//
// What another process copied out of a file is not told: it is memory without a name. Fails with io
// if there is no /proc.
WEIGHTMAP_API Result<ProcessesReport> processes(
    const std::vector<std::filesystem::path>& files = {});

// A mapping of a file in this process.
struct FileMapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool writable = false;
  std::uint64_t anonymous_bytes = 0;  // private copies made by writing
};

// Those that have one of `addresses`, whoever made them, ascending. Without `counted` their
// anonymous_bytes are 0, which costs some milliseconds less. Fails with io if there is no /proc.
WEIGHTMAP_API Result<std::vector<FileMapping>> file_mappings(
    std::span<const std::uintptr_t> addresses, bool counted = true);

}  // namespace weightmap
