// Copies a checkpoint into shared memory, for file systems that are slow to map.
//
//   auto staged = weightmap::stage("/mnt/remote/model.pt");
//   if (!staged) return tl::unexpected(staged.error());
//   auto checkpoint = weightmap::Checkpoint::open_descriptor(staged->descriptor());
//
// The copy uses its memory once for the whole machine: all processes that open it share its pages.
// By default it has no name (a memfd). Then it is sealed against changes, and is freed when the
// last process that has it open or mapped ends. Other processes get it by inheriting the
// descriptor, by receiving it over a Unix socket (SCM_RIGHTS) or, under the same user, by its
// path() while the StagedFile exists. With a name it is a file in /dev/shm, with mode 0600, which
// stays until it is removed; such a file cannot be sealed.
//
// The copy requests huge pages, and gets them where the system has them for shared memory (see
// /sys/kernel/mm/transparent_hugepage/shmem_enabled). Reserved ones (hugetlbfs) are not used: the
// size of a file there is a multiple of 2 MiB, while a zip archive must end with its directory.
//
// The copy can move to swap but not to a disk, and it cannot be evicted: only the end of the copy
// frees its memory. All functions may be called from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct StageOptions {
  // The name of the file in /dev/shm: up to 255 bytes without a slash, not beginning with a dot.
  // Empty: memory without a name.
  std::string name = {};
  // A larger file is refused. 0: the memory that the machine, the process's cgroups and, with a
  // name, /dev/shm have left, less a sixteenth.
  std::uint64_t budget_bytes = 0;
  // Keeps the copy mapped for writing in this process, and seals it against every other way to
  // write to it (F_SEAL_FUTURE_WRITE, Linux 5.1): a driver that pins memory with write intent can
  // use StagedFile::pinnable_memory() directly. Not together with a name, since any process of the
  // user can map a file in /dev/shm for writing.
  bool pinnable = false;
  Progress progress = {};  // called by the calling thread
};

// How the file was read. All sizes are in bytes.
struct StageReport {
  std::uint64_t file_bytes = 0;
  std::uint64_t direct_bytes = 0;  // read past the page cache (O_DIRECT)
  std::uint64_t cached_bytes = 0;  // copied from the page cache, which held them before
  // Read through the page cache and dropped from it at once.
  std::uint64_t dropped_bytes = 0;
  std::string why_not_direct;    // why the file system refused direct reads; empty if it did not
  std::uint64_t huge_bytes = 0;  // of the copy, in huge pages
  bool sealed = false;           // unchangeable, except through pinnable_memory()
  std::chrono::nanoseconds time{};
};

// Movable. Const members may be called from several threads at once.
class WEIGHTMAP_API StagedFile {
 public:
  StagedFile(StagedFile&&) noexcept;
  StagedFile& operator=(StagedFile&&) noexcept;
  // Closes the descriptor. Memory without a name is freed once no other process has it open or
  // mapped; a file with a name stays.
  ~StagedFile();

  // Returns the descriptor of the copy, which is open for reading, close-on-exec, and owned by this
  // object. Clear FD_CLOEXEC so that a started program inherits it.
  int descriptor() const noexcept;
  // "/proc/PID/fd/N", valid while this object and this process exist, or "/dev/shm/NAME".
  const std::filesystem::path& path() const noexcept;
  const StageReport& report() const noexcept;
  // Returns the copy in this process's memory: writable, shared with all processes that have it
  // open, and valid as long as this object, also in a forked child. Empty unless
  // StageOptions::pinnable was set. All of these processes see a write.
  std::span<std::byte> pinnable_memory() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void pinnable_memory() const&& = delete;  // would dangle

  struct WEIGHTMAP_LOCAL State;  // for other parts of the library
  struct WEIGHTMAP_LOCAL Access;

 private:
  explicit StagedFile(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

// Copies a checkpoint into memory, and opens the copy to prove that it has the same tensors. Bytes
// that are not cached are read past the page cache, so that memory does not hold them twice. If the
// file system does not support that, they are dropped from the page cache afterwards.
//
// Fails as Checkpoint::open() does if the file is not a whole checkpoint, before anything is
// copied; with io if the copy does not fit into memory, the system refuses, the disk fails, or the
// file is written to or truncated meanwhile; with invalid_argument if the name cannot be used, or
// exists already. Nothing is left behind then, nor if the process is killed.
WEIGHTMAP_API Result<StagedFile> stage(const std::filesystem::path& path,
                                       const StageOptions& options = {});

// Removes /dev/shm/NAME. Processes that have it open or mapped keep it. Fails with invalid_argument
// if stage() would refuse the name, or it is not a regular file of this user; with io if it is
// missing.
WEIGHTMAP_API Result<void> remove_staged(const std::string& name);

// Returns true if the file itself is in memory (on tmpfs or the like, or a staged copy), so that
// reading it never waits for a disk and evicting it has no effect.
WEIGHTMAP_API bool lives_in_memory(const Checkpoint& checkpoint) noexcept;

}  // namespace weightmap
