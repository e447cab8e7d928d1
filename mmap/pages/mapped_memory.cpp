#include "mmap/pages/mapped_memory.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/bytes/round_up.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

std::uint64_t overlap(const MappedArea& area, const AddressRange& range) noexcept {
  const std::uint64_t begin = std::max(area.begin, range.begin);
  const std::uint64_t end = std::min(area.end, range.end);
  return begin < end ? end - begin : 0;
}

// Scales the figures of a mapping of `whole` bytes to `part`.
MappedMemory part_of(const MappedMemory& memory, std::uint64_t part, std::uint64_t whole) noexcept {
  if (part == whole) return memory;
  const auto scaled = [part, whole](std::uint64_t bytes) {
    return static_cast<std::uint64_t>(static_cast<long double>(bytes) * part / whole);
  };
  return {scaled(memory.resident), scaled(memory.proportional),   scaled(memory.anonymous),
          scaled(memory.huge),     scaled(memory.anonymous_huge), scaled(memory.locked)};
}

}  // namespace

Result<MappedMemory> mapped_memory(std::span<const std::byte> range) {
  return mapped_memory({&range, 1});
}

Result<MappedMemory> mapped_memory(std::span<const std::span<const std::byte>> ranges) {
  const std::uint64_t page = os::page_bytes();
  std::vector<AddressRange> whole_pages;
  for (const std::span<const std::byte> range : ranges) {
    const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
    if (!range.empty()) whole_pages.push_back({begin, bytes::round_up(begin + range.size(), page)});
  }
  if (whole_pages.empty()) return MappedMemory{};
  std::ifstream smaps("/proc/self/smaps");
  if (!smaps) return failure(ErrorCode::io, "cannot open /proc/self/smaps");
  return read_smaps(smaps, whole_pages);
}

Result<MappedMemory> read_smaps(std::istream& smaps, std::span<const AddressRange> ranges) {
  MappedMemory memory;
  std::uint64_t wanted = 0;
  for (const AddressRange& range : ranges) wanted += range.end - range.begin;
  std::uint64_t listed = 0;
  for (SmapsReader reader(smaps); listed < wanted && reader.next();) {
    const MappedArea& area = reader.area();
    std::uint64_t part = 0;
    for (const AddressRange& range : ranges) part += overlap(area, range);
    if (part == 0) continue;
    listed += part;
    memory += part_of(reader.memory(), part, area.end - area.begin);
  }
  if (listed == wanted) return memory;
  return failure(ErrorCode::io, "/proc/self/smaps lists " + std::to_string(listed) + " of " +
                                    std::to_string(wanted) + " mapped bytes");
}

}  // namespace weightmap::mmap
