// A copy of a checkpoint in shared memory, for file systems that are slow to map.
//
//   auto staged = weightmap::stage("/mnt/remote/model.pt");
//   if (!staged) return fail(staged.error());
//   auto checkpoint = weightmap::Checkpoint::open_descriptor(staged->descriptor());
//
// The copy is memory, counted once for the whole machine: all processes that open it share its
// pages. By default it has no name (a memfd): it is sealed, so that nobody can change it, and gone
// when the last process that has it open or mapped is. Others get at it by inheriting the
// descriptor, by receiving it over a Unix socket (SCM_RIGHTS), or, processes of the same user, by
// its path() while the StagedFile is there. With a name it is a file in /dev/shm, with mode 0600,
// which outlives its maker until it is removed; such a file cannot be sealed.
//
// Pages of 2 MiB are asked for and used where the system gives them to shared memory (see
// /sys/kernel/mm/transparent_hugepage/shmem_enabled). Reserved ones (hugetlbfs) are not used: a
// file there has a size in multiples of 2 MiB, while the table of a zip archive is looked for where
// the file ends.
//
// It never moves to the disk by itself, but to swap, and cannot be evicted: what it takes is free
// again only when it is gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct StageOptions {
  // Of the file to make in /dev/shm: up to 255 bytes without a slash, not beginning with a dot.
  // Empty: memory without a name.
  std::string name;
  // Refuse a file of more bytes. 0: what the machine, the process's cgroup and, with a name,
  // /dev/shm have left, less a sixteenth.
  std::uint64_t budget_bytes = 0;
  // Gets the bytes copied and the bytes in all, from the calling thread.
  std::function<void(std::uint64_t, std::uint64_t)> progress;
};

// How it was read; all in bytes.
struct StageReport {
  std::uint64_t file_bytes = 0;
  std::uint64_t direct_bytes = 0;  // read past the page cache (O_DIRECT)
  std::uint64_t cached_bytes = 0;  // copied from the page cache, where they were before
  // Read through the page cache, which was asked to drop them at once.
  std::uint64_t dropped_bytes = 0;
  std::string why_not_direct;    // what the file system said to direct reads; empty if it did them
  std::uint64_t huge_bytes = 0;  // of the copy, in pages of 2 MiB
  bool sealed = false;
  std::chrono::nanoseconds time{};
};

// Movable. Const members may be called from several threads at once.
class WEIGHTMAP_API StagedFile {
 public:
  StagedFile(StagedFile&&) noexcept;
  StagedFile& operator=(StagedFile&&) noexcept;
  // Closes the descriptor. Memory without a name is free again once nobody else has it open or
  // mapped; a file with a name stays.
  ~StagedFile();

  // Open for reading and close-on-exec; belongs to this object. To let a program that is started
  // inherit it, clear FD_CLOEXEC.
  int descriptor() const noexcept;
  // "/proc/PID/fd/N", as long as this object is there and this process lives, or "/dev/shm/NAME".
  const std::filesystem::path& path() const noexcept;
  const StageReport& report() const noexcept;

 private:
  friend WEIGHTMAP_API Result<StagedFile> stage(const std::filesystem::path&, const StageOptions&);
  struct WEIGHTMAP_LOCAL State;
  explicit StagedFile(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

// Copies a checkpoint into memory and opens the copy to see that it has the same tensors. What is
// not cached is read past the page cache, so that it is not held twice, or dropped from there again
// where the file system knows no such reads.
//
// Fails as Checkpoint::open() does for what is no whole checkpoint, before anything is copied; with
// io if it does not fit into memory, the system refuses, the disk fails, or the file is replaced in
// place, written to or cut short meanwhile; with invalid_argument for a name that cannot be used or
// that something has already. Leaves nothing behind then, nor if the process is killed.
WEIGHTMAP_API Result<StagedFile> stage(const std::filesystem::path& path,
                                       const StageOptions& options = {});

// Removes /dev/shm/NAME. Processes that have it open or mapped keep it. Fails with invalid_argument
// for a name that stage() would not take and for what is no regular file of this user, with io if
// there is none.
WEIGHTMAP_API Result<void> remove_staged(const std::string& name);

// Whether the file itself is in memory (tmpfs and its like, a staged copy), so that reading it
// waits for no disk and evicting it does nothing.
WEIGHTMAP_API bool lives_in_memory(const Checkpoint& checkpoint) noexcept;

}  // namespace weightmap
