// Keeps the process alive when pages of a mapped file cannot be had any more: the file was cut
// short, the disk failed, or the memory is bad. All of these raise SIGBUS where the page is read.
//
// A handler of SIGBUS, one for the process, looks the address up in a table of guarded mappings. If
// it lies in one, that mapping is marked as lost and all of it becomes memory that reads as zeros;
// the read then goes on. Whoever reads must ask lost_at() before believing what was read. Any other
// SIGBUS goes to the handler that was there before (bus_handler.hpp).
//
// A handler that is installed later and does not pass signals on disables the guard until the next
// one is made, which puts ours in front again. One that passes them on by raise(), as Python's
// faulthandler does, loses the address on the way; then every guarded mapping whose file is shorter
// than it was is taken for lost.
//
// The handler stays installed: the library must not be unloaded after a guard was made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "weightmap/result.hpp"

namespace weightmap::os {

class File;

class Guard {
 public:
  // At any one time, in one process.
  static constexpr std::size_t capacity = 1024;

  Guard() noexcept = default;
  // Guards a mapping of the whole file. Both must outlive the guard. Fails with limit_exceeded if
  // as many are guarded as can be, with io or unsupported if the handler cannot be installed.
  static Result<Guard> over(std::span<const std::byte> mapping, bool writable, const File& file);
  Guard(Guard&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  Guard& operator=(Guard&& other) noexcept {
    release();
    slot_ = std::exchange(other.slot_, nullptr);
    return *this;
  }
  // Waits for a handler that is at work on this mapping in another thread.
  ~Guard() { release(); }

  // The first offset that could not be read; nullopt while nothing was lost. Never taken back.
  std::optional<std::uint64_t> lost_at() const noexcept;

 private:
  struct Slot;
  struct Table;

  explicit Guard(Slot* slot) noexcept : slot_(slot) {}
  void release() noexcept;

  Slot* slot_ = nullptr;
};

}  // namespace weightmap::os
