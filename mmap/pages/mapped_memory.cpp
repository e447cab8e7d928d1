#include "mmap/pages/mapped_memory.hpp"

#include <unistd.h>

#include <fstream>
#include <string>

#include "mmap/page_size.hpp"

namespace weightmap::os {

Result<MappedMemory> mapped_memory(std::span<const std::byte> range) {
  if (range.empty()) return MappedMemory{};
  std::ifstream smaps("/proc/self/smaps");
  if (!smaps) return failure(ErrorCode::io, "cannot open /proc/self/smaps");
  const std::uint64_t page = page_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
  return read_smaps(smaps, begin, (begin + range.size() + page - 1) / page * page);
}

Result<MappedMemory> read_smaps(std::istream& smaps, std::uint64_t begin, std::uint64_t end) {
  MappedMemory memory;
  std::uint64_t listed = 0;
  for (SmapsReader reader(smaps); reader.next();) {
    const MappedArea& area = reader.area();
    if (area.begin >= end) break;  // they come in the order of their addresses
    if (area.begin < begin || area.end > end) continue;
    listed += area.end - area.begin;
    memory += reader.memory();
  }
  if (listed == end - begin) return memory;
  return failure(ErrorCode::io, "/proc/self/smaps lists " + std::to_string(listed) + " of " +
                                    std::to_string(end - begin) + " mapped bytes");
}

}  // namespace weightmap::os
