// Keeps the process alive when pages of a mapped file can no longer be read: the file was
// truncated, the disk failed, or the memory is bad. All of these raise SIGBUS at the read.
//
// A handler of SIGBUS, one for the process, looks the address up in a table of guarded mappings. If
// it lies in one, the file mapped there is marked as lost and all of it becomes memory that reads
// as zeros; the read then continues. Readers must check lost_at() before they trust the bytes. Any
// other SIGBUS goes to the previous handler (fault_handler.hpp).
//
// A handler that is installed later and does not pass signals on disables the guard until the next
// guard puts ours in front again. One that passes them on by raise(), as Python's faulthandler
// does, loses the address; then every guarded file that was truncated counts as lost.
//
// A handler of SIGSEGV reports a write to a read-only guarded mapping, and its byte. It repairs
// nothing: the signal then goes to the previous handler.
//
// Both handlers stay installed: the library must not be unloaded after the first guard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// A file, and where it begins in a range of addresses that several files are mapped into. Borrows
// the file.
struct PlacedFile {
  const os::File* file;
  std::uint64_t base = 0;
};

// Called in a signal handler for a write to the byte at `position` of a read-only mapping.
struct RefusedWrite {
  void (*tell)(const void* context, std::uint64_t position) noexcept = nullptr;
  const void* context = nullptr;  // must outlive the guard
};

class Guard {
 public:
  // Maximum number at a time in one process.
  static constexpr std::size_t capacity = 1024;

  Guard() noexcept;
  // Guards a mapping of whole files. Mapping and files must outlive the guard, and so must
  // `loss_event`, a descriptor that receives the number 1 as 8 bytes for each lost file. Fails with
  // limit_exceeded if the maximum of guarded mappings is reached, with io or unsupported if the
  // handler cannot be installed.
  static Result<Guard> over(std::span<const std::byte> mapping, bool writable,
                            std::span<const PlacedFile> files, int loss_event = -1,
                            RefusedWrite on_write = {});
  // Watches a read-only mapping for writes only; does not handle SIGBUS.
  static Result<Guard> against_writes(std::span<const std::byte> mapping, RefusedWrite on_write);
  // Puts the handler of SIGSEGV in front. Fails with io or unsupported as above.
  static Result<void> watch_accesses();
  Guard(Guard&& other) noexcept;
  Guard& operator=(Guard&& other) noexcept;
  // Waits for a handler that is running for this mapping in another thread.
  ~Guard();

  // True if the guard receives SIGBUS first. False before the first guard.
  static bool is_active() noexcept;

  // Returns the first offset of the file at `base` that could not be read; nullopt while nothing
  // was lost. Never reset.
  std::optional<std::uint64_t> lost_at(std::uint64_t base = 0) const noexcept;
  bool is_lost() const noexcept;  // true if any file is

  // Checks bytes that were read from anywhere: fails with io if they belong to a guarded mapping
  // and their file was lost or truncated, of which the last page gives no sign.
  static Result<void> check_read(std::span<const std::byte> bytes);

 private:
  struct Part;
  struct Slot;
  struct Table;

  Result<void> take_slot(std::span<const std::byte> mapping, bool writable, std::size_t files,
                         RefusedWrite on_write);
  void release() noexcept;

  Slot* slot_ = nullptr;
  std::unique_ptr<Part[]> parts_;  // the handler reads them while the slot is in use
};

}  // namespace weightmap::mmap
