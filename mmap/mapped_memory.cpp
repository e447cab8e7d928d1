#include "mmap/mapped_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/bytes/checked.hpp"

namespace weightmap::os {
namespace {

struct AddressRange {
  std::uint64_t begin;
  std::uint64_t end;
};

// Takes a number from the front of `text`.
std::optional<std::uint64_t> take_number(std::string_view& text, int base) noexcept {
  std::uint64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return value;
}

// "7f0000000000-7f0000001000 r--s ...": the line that a mapping begins with.
std::optional<AddressRange> parse_mapping(std::string_view line) noexcept {
  const std::optional<std::uint64_t> begin = take_number(line, 16);
  if (!begin || !line.starts_with('-')) return std::nullopt;
  line.remove_prefix(1);
  const std::optional<std::uint64_t> end = take_number(line, 16);
  if (!end || !line.starts_with(' ') || *end <= *begin) return std::nullopt;
  return AddressRange{*begin, *end};
}

std::uint64_t* field_of(MappedMemory& memory, std::string_view name) noexcept {
  if (name == "Rss") return &memory.resident;
  if (name == "Pss") return &memory.proportional;
  if (name == "Anonymous") return &memory.anonymous;
  if (name == "FilePmdMapped" || name == "ShmemPmdMapped") return &memory.huge;
  if (name == "AnonHugePages") return &memory.anonymous_huge;
  return nullptr;
}

// "Rss:                  12 kB"; other lines are no concern of ours.
void add_line(MappedMemory& memory, std::string_view line) noexcept {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  std::uint64_t* const field = field_of(memory, line.substr(0, colon));
  if (field == nullptr) return;
  line.remove_prefix(std::min(line.find_first_not_of(' ', colon + 1), line.size()));
  const std::optional<std::uint64_t> kilobytes = take_number(line, 10);
  std::uint64_t bytes = 0;
  if (kilobytes && line == " kB" && bytes::checked_mul(*kilobytes, std::uint64_t{1024}, &bytes))
    *field += bytes;
}

}  // namespace

MappedMemory& MappedMemory::operator+=(const MappedMemory& other) noexcept {
  resident += other.resident;
  proportional += other.proportional;
  anonymous += other.anonymous;
  huge += other.huge;
  anonymous_huge += other.anonymous_huge;
  return *this;
}

Result<MappedMemory> mapped_memory(std::span<const std::byte> range) {
  if (range.empty()) return MappedMemory{};
  std::ifstream smaps("/proc/self/smaps");
  if (!smaps) return failure(ErrorCode::io, "cannot open /proc/self/smaps");
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
  return read_smaps(smaps, begin, (begin + range.size() + page - 1) / page * page);
}

Result<MappedMemory> read_smaps(std::istream& smaps, std::uint64_t begin, std::uint64_t end) {
  MappedMemory memory;
  std::uint64_t listed = 0;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (const std::optional<AddressRange> mapping = parse_mapping(line)) {
      if (mapping->begin >= end) break;  // they come in the order of their addresses
      inside = mapping->begin >= begin && mapping->end <= end;
      if (inside) listed += mapping->end - mapping->begin;
    } else if (inside) {
      add_line(memory, line);
    }
  }
  if (listed == end - begin) return memory;
  return failure(ErrorCode::io, "/proc/self/smaps lists " + std::to_string(listed) + " of " +
                                    std::to_string(end - begin) + " mapped bytes");
}

}  // namespace weightmap::os
