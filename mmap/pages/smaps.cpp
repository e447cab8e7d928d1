#include "mmap/pages/smaps.hpp"

#include <sys/sysmacros.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/number.hpp"

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

}  // namespace weightmap::mmap
