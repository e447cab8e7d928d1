// How a range of addresses is held in memory, as /proc/self/smaps says it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>

#include "mmap/pages/smaps.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Of `range`, which must be one or more whole mappings; empty for an empty one. Fails with io if
// the system does not list them, or lists one that sticks out.
Result<MappedMemory> mapped_memory(std::span<const std::byte> range);

// The same from a text in the format of /proc/self/smaps, of the addresses [begin, end).
Result<MappedMemory> read_smaps(std::istream& smaps, std::uint64_t begin, std::uint64_t end);

}  // namespace weightmap::os
