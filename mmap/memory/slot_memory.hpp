// Memory that is filled and given back part by part: of one process, or of all that map its file.
#pragma once

#include <cstdint>
#include <span>

#include "mmap/reservation.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// Takes addresses only; memory comes with what is written to it. In pages of 2 MiB where the system
// has them. May be used by any thread.
class SlotMemory {
 public:
  SlotMemory() noexcept = default;
  // Of this process. A forked child gets a copy of what it has then. Fails with io if the system
  // refuses.
  static Result<SlotMemory> of_process(std::uint64_t bytes);
  // The part of a file that lives in memory, from `offset`, a multiple of large_page. The
  // descriptor is open for writing as long as this exists. A forked child does not have it: others
  // would change there what it reads.
  static Result<SlotMemory> of_file(int descriptor, std::uint64_t offset, std::uint64_t bytes);

  std::span<std::byte> bytes() const noexcept { return memory_.bytes(); }

  // Before a range of a file that has no memory is written to: fails with io if there is none,
  // where a write would raise a signal. Ranges are whole pages here and below.
  Result<void> allocate(std::uint64_t offset, std::uint64_t length) const;
  // The range reads as zeros afterwards, of each process.
  void give_back(std::uint64_t offset, std::uint64_t length) const noexcept;

 private:
  SlotMemory(Reservation memory, int descriptor, std::uint64_t offset) noexcept
      : memory_(std::move(memory)), descriptor_(descriptor), offset_(offset) {}

  Reservation memory_;
  int descriptor_ = -1;  // none: of this process
  std::uint64_t offset_ = 0;
};

}  // namespace weightmap::mmap
