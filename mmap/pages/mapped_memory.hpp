// Reports how ranges of addresses are held in memory, from /proc/self/smaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>

#include "mmap/pages/smaps.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// Returns the figures of `range`; zeros for an empty one. The system counts per mapping, and merges
// similar neighbours: for a mapping that exceeds the range, the figures are scaled by length. Fails
// with io if the system does not list all of the range.
Result<MappedMemory> mapped_memory(std::span<const std::byte> range);
// Returns the sum over all ranges, from one read of the list.
Result<MappedMemory> mapped_memory(std::span<const std::span<const std::byte>> ranges);

struct AddressRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Does the same for a text in the format of /proc/self/smaps.
Result<MappedMemory> read_smaps(std::istream& smaps, std::span<const AddressRange> ranges);

}  // namespace weightmap::mmap
