// Lists the processes that have a checkpoint mapped, and their memory.
//
//   auto report = weightmap::processes({"model.pt"});
//   for (const weightmap::MappedCheckpoint& mapped : report->mapped)
//     mapped.pss_bytes;                             // the sum is the cost for the machine
//
// All sizes are in bytes. A process that ends during the call is left out. Only /proc is read and
// the first bytes of files that may be checkpoints. May be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/result.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

// The version of a file that a process has mapped.
enum class MappedVersion : std::uint8_t {
  current,   // the one that has the name now; also memory without a name, such as a staged copy
  replaced,  // another file has taken its name
  deleted,   // no file has its name
};
// Returns "current", "replaced" or "deleted".
WEIGHTMAP_API std::string_view to_string(MappedVersion version) noexcept;

// The mappings that one process has of one file.
struct MappedCheckpoint {
  std::int64_t process = 0;
  std::string command;  // its arguments, joined by spaces; may hold any bytes
  // The path when it was mapped. For a blob in huggingface_hub's cache, a link to it in a snapshot;
  // "/memfd:NAME" for memory without a path.
  std::string file;
  MappedVersion version = MappedVersion::current;
  std::uint64_t device = 0;  // of the file; together with `inode` its identity
  std::uint64_t inode = 0;
  std::uint64_t file_bytes = 0;  // up to the last mapped page if the file is inaccessible

  bool has_shared = false;   // it has a shared mapping of the file
  bool has_private = false;  // it has a private mapping of the file
  bool writable = false;     // one of its mappings is writable

  std::uint64_t mapped_bytes = 0;    // of address space
  std::uint64_t resident_bytes = 0;  // RSS: in the page table
  // PSS: the resident pages, each divided by the number of processes that have it mapped.
  std::uint64_t pss_bytes = 0;
  std::uint64_t anonymous_bytes = 0;  // private copies made by writing; included in resident_bytes
  std::uint64_t huge_mapped_bytes = 0;  // mapped 2 MiB at a time; included in resident_bytes
  std::uint64_t locked_bytes = 0;       // part of pss_bytes that is locked in memory
};

struct ProcessesReport {
  std::vector<MappedCheckpoint> mapped;         // ordered by file, then by process
  std::uint64_t unreadable_processes = 0;       // processes that this process may not inspect
  std::vector<std::uint32_t> unreadable_users;  // the users that they are of, ascending
};

// Returns the processes that have one of `files` mapped. A mapping counts if it is of the file that
// has the name now, under whatever name it was mapped, or of an older file that had this name then.
// An index of shards or a folder stands for all files of its checkpoint. A link to a folder stands
// for those of the folders, too, that fetch_model() or publish() led it to before: they are
// `replaced`, or `deleted` with their folder. A file in a layer of
// overlayfs counts as mapped where a mount of this process's mount table shows it, unless a layer
// above has a file of its name by now.
//
// Nothing is opened on FUSE and virtiofs, where an open may drop the file's cached pages, also
// those that processes have mapped. There an index or a folder stands for all files of the folder.
//
// Fails with io, about the file, if its file system has not answered within 10 s: a thread waits
// for it from then on.
//
// Without `files`, returns the processes that have any checkpoint mapped: a file that begins like
// torch.save()'s, safetensors' or GGUF's files, a staged copy or, if a file is inaccessible, one
// whose name ends with .pt, .pth, .ckpt, .bin, .safetensors or .gguf.
//
// Memory that a process copied out of a file has no name and is not reported. Fails with io if
// there is no /proc.
WEIGHTMAP_API Result<ProcessesReport> processes(
    const std::vector<std::filesystem::path>& files = {});

// Fails with unsupported if a look at the checkpoint may drop pages that somebody uses: a file of
// it is on FUSE or virtiofs, a process that may be inspected has it mapped, and the server does not
// keep what is cached when a file is opened, as a file beside it shows that nobody has mapped. No
// other file is opened.
WEIGHTMAP_API Result<void> check_look_is_harmless(const std::filesystem::path& path);

// A mapping of a file in this process.
struct FileMapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool writable = false;
  std::uint64_t anonymous_bytes = 0;  // private copies made by writing
};

// Returns the mappings that contain one of `addresses`, of any library, ascending. Without
// `counted` their anonymous_bytes are 0, which is faster. Fails with io if there is no /proc.
WEIGHTMAP_API Result<std::vector<FileMapping>> file_mappings(
    std::span<const std::uintptr_t> addresses, bool counted = true);

}  // namespace weightmap
