// Briefly maps parts of a file beside its main mapping, which is unaffected by advice given here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mmap/reservation.hpp"
#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/system/file/file.hpp"

namespace weightmap::mmap {

// Read-only. Not guarded: pages are populated and inspected here, but never read by address.
class FileWindow {
 public:
  // The parts side by side, at an address that is a multiple of `alignment`, which is a power of
  // two and at least a page. The offsets are multiples of it, too, and so are the lengths but for
  // the last one.
  FileWindow(const os::File& file, std::span<const ByteRange> parts,
             std::uint64_t alignment) noexcept;

  std::span<std::byte> bytes() const noexcept { return bytes_; }  // empty: the system refused

 private:
  Reservation reservation_;
  std::span<std::byte> bytes_;
};

}  // namespace weightmap::mmap
