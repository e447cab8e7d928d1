#include "runtime/formats/dcp/item_pattern.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/zip/signatures.hpp"

namespace weightmap::dcp {
namespace {

// The fields of central entries and local headers.
constexpr std::uint64_t crc32_field = 16;
constexpr std::uint64_t lengths_field = 28;        // of name, extra field and comment
constexpr std::uint64_t local_lengths_field = 26;  // of name and extra field

std::uint64_t u16(std::span<const std::byte> bytes, std::uint64_t offset) noexcept {
  return bytes::load_le<std::uint16_t>(bytes.data() + offset);
}

// The search for the end of the archive looks at all bytes of the tail, those of the tensor, too.
bool has_one_end(std::span<const std::byte> tail) noexcept {
  constexpr std::string_view signature = "PK\5\6";
  const std::string_view text(reinterpret_cast<const char*>(tail.data()), tail.size());
  const std::size_t first = text.find(signature);
  return first != std::string_view::npos && first == text.rfind(signature);
}

}  // namespace

std::span<const std::byte> ItemEnds::bytes(std::uint64_t offset,
                                           std::uint64_t size) const noexcept {
  if (bytes::contains(head.size(), offset, size)) return head.subspan(offset, size);
  const std::uint64_t begin = length - tail.size();
  if (offset < begin || !bytes::contains(tail.size(), offset - begin, size)) return {};
  return tail.subspan(offset - begin, size);
}

std::optional<ItemPattern> ItemPattern::of(const ItemEnds& ends, const zip::Directory& directory) {
  ItemPattern pattern;
  pattern.length_ = ends.length;
  if (!has_one_end(ends.tail) || !pattern.add_gaps(ends, directory)) return std::nullopt;
  std::ranges::sort(pattern.gaps_, {}, &Range::begin);
  pattern.add_common(ends.head, 0);
  pattern.add_common(ends.tail, ends.length - ends.tail.size());
  return pattern;
}

bool ItemPattern::add_gaps(const ItemEnds& ends, const zip::Directory& directory) {
  const zip::Record* const storage = directory.find("data/0");
  const zip::Record* const id = directory.find(".data/serialization_id");
  std::uint64_t at = directory.offset();
  for (const zip::Record& record : directory.records()) {
    const std::span<const std::byte> entry = ends.bytes(at, zip::central_entry_bytes);
    if (entry.empty()) return false;
    if (&record == storage || &record == id) {
      const auto header = ends.bytes(record.header_offset, zip::local_header_bytes);
      if (header.empty()) return false;
      const std::uint64_t payload = record.header_offset + zip::local_header_bytes +
                                    u16(header, local_lengths_field) +
                                    u16(header, local_lengths_field + 2);
      const std::uint64_t end = directory.limit_of(record);  // behind the descriptor
      if (payload > end) return false;
      gaps_.push_back({payload, end});
      gaps_.push_back({at + crc32_field, at + crc32_field + 4});
      if (&record == storage) {
        storage_position_ = payload;
        crc32_position_ = at + crc32_field;
      }
    }
    at += zip::central_entry_bytes + u16(entry, lengths_field) + u16(entry, lengths_field + 2) +
          u16(entry, lengths_field + 4);
  }
  return storage != nullptr;
}

// Adds what lies outside of the gaps, which are sorted, to the bytes that are compared.
void ItemPattern::add_common(std::span<const std::byte> bytes, std::uint64_t begin) {
  const std::uint64_t end = begin + bytes.size();
  const auto add = [&](std::uint64_t from, std::uint64_t to) {
    if (from >= to) return;
    const std::byte* const first = bytes.data() + (from - begin);
    common_.push_back({from, {first, first + (to - from)}});
  };
  std::uint64_t at = begin;
  for (const Range& gap : gaps_) {
    add(at, std::min(gap.begin, end));
    at = std::max(at, gap.end);
  }
  add(at, end);
}

bool ItemPattern::matches(const ItemEnds& ends) const noexcept {
  if (ends.length != length_ || !has_one_end(ends.tail)) return false;
  return std::ranges::all_of(common_, [&](const Common& common) {
    const std::span<const std::byte> found = ends.bytes(common.begin, common.bytes.size());
    return !found.empty() &&
           std::memcmp(found.data(), common.bytes.data(), common.bytes.size()) == 0;
  });
}

std::uint32_t ItemPattern::crc32(const ItemEnds& ends) const noexcept {
  return bytes::load_le<std::uint32_t>(ends.bytes(crc32_position_, 4).data());
}

}  // namespace weightmap::dcp
