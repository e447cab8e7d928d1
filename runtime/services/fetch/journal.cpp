#include "runtime/services/fetch/journal.hpp"

#include <cstdint>
#include <limits>
#include <optional>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/base/zip/crc32.hpp"

namespace weightmap {
namespace {

constexpr std::size_t digits = 8;
constexpr std::size_t never_cut = std::numeric_limits<std::size_t>::max();

std::string sum_of(std::string_view record) {
  const std::uint32_t sum = zip::crc32(std::as_bytes(std::span(record)));
  char text[digits];
  const char* const end = std::to_chars(text, text + digits, sum, 16).ptr;
  const auto length = static_cast<std::size_t>(end - text);
  return std::string(digits - length, '0').append(text, length);
}

std::string line_of(const std::string& record) { return sum_of(record) + ' ' + record + '\n'; }

// Reads a number that ends with the text or before `end`, and removes both.
std::optional<std::uint64_t> take_number(std::string_view& text, std::string_view end) {
  const std::optional<std::uint64_t> value = bytes::take_number(text);
  if (!value || !text.starts_with(end)) return std::nullopt;
  text.remove_prefix(end.size());
  return value;
}

std::optional<ByteRange> range_of(std::string_view line, std::uint64_t size) {
  if (line.size() <= digits || line[digits] != ' ') return std::nullopt;
  std::string_view record = line.substr(digits + 1);
  if (line.substr(0, digits) != sum_of(record)) return std::nullopt;
  const std::optional<std::uint64_t> offset = take_number(record, " ");
  if (!offset) return std::nullopt;
  const std::optional<std::uint64_t> length = take_number(record, "");
  if (!length || !record.empty() || !bytes::contains(size, *offset, *length)) return std::nullopt;
  return ByteRange{*offset, *length};
}

}  // namespace

std::string first_line(const std::string& source_name, const RemoteVersion& version) {
  return line_of("weightmap fetch 1 " + std::to_string(version.size) + ' ' +
                 bytes::quote(version.tag, never_cut) + ' ' + bytes::quote(version.id, never_cut) +
                 ' ' + bytes::quote(source_name, never_cut));
}

std::string lines_of(std::span<const ByteRange> ranges) {
  std::string lines;
  for (const ByteRange& range : ranges)
    lines += line_of(std::to_string(range.offset) + ' ' + std::to_string(range.length));
  return lines;
}

bytes::RangeSet read_journal(std::string_view text, std::string_view first, std::uint64_t size) {
  bytes::RangeSet ranges;
  if (!text.starts_with(first)) return ranges;
  text.remove_prefix(first.size());
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    const std::optional<ByteRange> range = range_of(text.substr(0, end), size);
    if (!range) return {};
    ranges.add(*range);
    text.remove_prefix(end + 1);
  }
  return ranges;
}

}  // namespace weightmap
