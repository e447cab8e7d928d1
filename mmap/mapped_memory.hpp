// How a range of addresses is held in memory, as /proc/self/smaps says it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>

#include "weightmap/result.hpp"

namespace weightmap::os {

// In bytes. What is counted is in this process's page table: pages that are only cached are not.
struct MappedMemory {
  std::uint64_t resident = 0;
  std::uint64_t proportional = 0;  // PSS: each page divided by the number of processes that map it
  std::uint64_t anonymous = 0;     // copies that belong to this process
  std::uint64_t huge = 0;          // file pages mapped 2 MiB at a time
  std::uint64_t anonymous_huge = 0;  // copies mapped 2 MiB at a time

  MappedMemory& operator+=(const MappedMemory& other) noexcept;
};

// Of `range`, which must be one or more whole mappings; empty for an empty one. Fails with io if
// the system does not list them, or lists one that sticks out.
Result<MappedMemory> mapped_memory(std::span<const std::byte> range);

// The same from a text in the format of /proc/self/smaps, of the addresses [begin, end).
Result<MappedMemory> read_smaps(std::istream& smaps, std::uint64_t begin, std::uint64_t end);

}  // namespace weightmap::os
