// Keeps the process alive when pages of a mapped file cannot be had any more: the file was
// truncated, the disk failed, or the memory is bad. All of these raise SIGBUS where the page is
// read.
//
// A handler of SIGBUS, one for the process, looks the address up in a table of guarded mappings. If
// it lies in one, the file that is mapped there is marked as lost and all of it becomes memory that
// reads as zeros; the read then goes on. Whoever reads must ask lost_at() before believing what was
// read. Any other SIGBUS goes to the handler that was there before (fault_handler.hpp).
//
// A handler that is installed later and does not pass signals on disables the guard until the next
// one is made, which puts ours in front again. One that passes them on by raise(), as Python's
// faulthandler does, loses the address on the way; then every guarded file that is shorter than it
// was is taken for lost.
//
// A handler of SIGSEGV, likewise, says which byte of a guarded mapping somebody wanted to write to
// that is only read. It repairs nothing: the signal then goes to the handler that was there before.
//
// Both handlers stay installed: the library must not be unloaded after a guard was made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "runtime/os/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// A file, and where it begins in a range of addresses that several files are mapped into. Borrows
// the file.
struct PlacedFile {
  const os::File* file;
  std::uint64_t base = 0;
};

// Called in a signal handler, for a write to the byte at `position` of a mapping that is only read.
struct RefusedWrite {
  void (*tell)(const void* context, std::uint64_t position) noexcept = nullptr;
  const void* context = nullptr;  // must outlive the guard
};

class Guard {
 public:
  // At any one time, in one process.
  static constexpr std::size_t capacity = 1024;

  Guard() noexcept;
  // Guards a mapping of whole files. Mapping and files must outlive the guard, and so must
  // `loss_event`, a descriptor that gets the number 1 as 8 bytes for each file that is lost. Fails
  // with limit_exceeded if as many mappings are guarded as can be, with io or unsupported if the
  // handler cannot be installed.
  static Result<Guard> over(std::span<const std::byte> mapping, bool writable,
                            std::span<const PlacedFile> files, int loss_event = -1,
                            RefusedWrite on_write = {});
  // Over a mapping that is only read, whose writes alone are told; SIGBUS is left as it is.
  static Result<Guard> against_writes(std::span<const std::byte> mapping, RefusedWrite on_write);
  Guard(Guard&& other) noexcept;
  Guard& operator=(Guard&& other) noexcept;
  // Waits for a handler that is at work on this mapping in another thread.
  ~Guard();

  // Whether SIGBUS comes to the guard first. False before the first one was made.
  static bool is_active() noexcept;

  // The first offset of the file at `base` that could not be read; nullopt while nothing of it was
  // lost. Never taken back.
  std::optional<std::uint64_t> lost_at(std::uint64_t base = 0) const noexcept;
  bool is_lost() const noexcept;  // any of the files

  // For whoever has read bytes that lie anywhere: fails with io if they are of a guarded mapping
  // and their file was lost, or is shorter now, of which the last page says nothing.
  static Result<void> check_read(std::span<const std::byte> bytes);

 private:
  struct Part;
  struct Slot;
  struct Table;

  Result<void> take_slot(std::span<const std::byte> mapping, bool writable, std::size_t files,
                         RefusedWrite on_write);
  void release() noexcept;

  Slot* slot_ = nullptr;
  std::unique_ptr<Part[]> parts_;  // read by the handler while the slot is in use
};

}  // namespace weightmap::mmap
