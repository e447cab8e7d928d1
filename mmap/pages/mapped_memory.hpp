// How ranges of addresses are held in memory, as /proc/self/smaps says it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>

#include "mmap/pages/smaps.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// Of `range`; empty for an empty one. The system counts by mappings, and joins neighbours that are
// alike: of one that sticks out, the part is taken that its length has. Fails with io if the system
// does not list all of the range.
Result<MappedMemory> mapped_memory(std::span<const std::byte> range);
// Of all of them together, in one reading of the list.
Result<MappedMemory> mapped_memory(std::span<const std::span<const std::byte>> ranges);

struct AddressRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// The same from a text in the format of /proc/self/smaps.
Result<MappedMemory> read_smaps(std::istream& smaps, std::span<const AddressRange> ranges);

}  // namespace weightmap::mmap
