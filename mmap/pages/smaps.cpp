#include "mmap/pages/smaps.hpp"

#include <sys/sysmacros.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/base/bytes/round_up.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

bool take(std::string_view& text, char wanted) noexcept {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(1);
  return true;
}

// Takes a number and the character behind it.
bool take_field(std::string_view& text, int base, char behind, std::uint64_t& value) noexcept {
  const std::optional<std::uint64_t> number = bytes::take_number(text, base);
  if (!number || !take(text, behind)) return false;
  value = *number;
  return true;
}

// Parses "r--s 00000000 fe:00 12     /model.pt".
void parse_file(std::string_view text, MappedArea& area) {
  if (text.size() < 5 || text[4] != ' ') return;
  area.writable = text[1] == 'w';
  area.executable = text[2] == 'x';
  area.shared = text[3] == 's';
  text.remove_prefix(5);
  std::uint64_t major_number = 0, minor_number = 0;
  if (!take_field(text, 16, ' ', area.file_offset) || !take_field(text, 16, ':', major_number) ||
      !take_field(text, 16, ' ', minor_number))
    return;
  area.device = makedev(static_cast<unsigned>(major_number), static_cast<unsigned>(minor_number));
  area.inode = bytes::take_number(text).value_or(0);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  area.path = text;
}

std::uint64_t* field_of(MappedMemory& memory, std::string_view name) noexcept {
  if (name == "Rss") return &memory.resident;
  if (name == "Pss") return &memory.proportional;
  if (name == "Anonymous") return &memory.anonymous;
  if (name == "FilePmdMapped" || name == "ShmemPmdMapped") return &memory.huge;
  if (name == "AnonHugePages") return &memory.anonymous_huge;
  if (name == "Locked") return &memory.locked;
  return nullptr;
}

// Parses "Rss:                  12 kB"; ignores other lines.
void add_line(MappedMemory& memory, std::string_view line) noexcept {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  std::uint64_t* const field = field_of(memory, line.substr(0, colon));
  if (field == nullptr) return;
  line.remove_prefix(std::min(line.find_first_not_of(' ', colon + 1), line.size()));
  const std::optional<std::uint64_t> kilobytes = bytes::take_number(line);
  std::uint64_t bytes = 0;
  if (kilobytes && line == " kB" && bytes::checked_mul(*kilobytes, std::uint64_t{1024}, &bytes))
    *field += bytes;
}

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

MappedMemory& MappedMemory::operator+=(const MappedMemory& other) noexcept {
  resident += other.resident;
  proportional += other.proportional;
  anonymous += other.anonymous;
  huge += other.huge;
  anonymous_huge += other.anonymous_huge;
  locked += other.locked;
  return *this;
}

bool parse_area(std::string_view line, MappedArea& area) {
  MappedArea found;
  if (!take_field(line, 16, '-', found.begin) || !take_field(line, 16, ' ', found.end) ||
      found.end <= found.begin)
    return false;
  parse_file(line, found);
  area = std::move(found);
  return true;
}

bool SmapsReader::next() {
  while (!at_area_ && std::getline(text_, line_)) at_area_ = parse_area(line_, next_);
  if (!at_area_) return false;
  area_ = std::move(next_);
  memory_ = {};
  at_area_ = false;
  while (!at_area_ && std::getline(text_, line_)) {
    at_area_ = parse_area(line_, next_);
    if (!at_area_) add_line(memory_, line_);
  }
  return true;
}

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
