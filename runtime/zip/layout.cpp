#include "runtime/zip/layout.hpp"

#include <bit>

#include "runtime/bytes/checked.hpp"
#include "runtime/zip/signatures.hpp"

namespace weightmap::zip {
namespace {

constexpr std::uint64_t padding_field_bytes = 4;  // "FB" and its length, before the padding

std::uint64_t remainder(std::uint64_t value, std::uint64_t alignment) noexcept {
  return std::has_single_bit(alignment) ? value & (alignment - 1) : value % alignment;
}

}  // namespace

std::optional<std::uint64_t> Layout::payload_offset(std::uint64_t header_offset,
                                                    std::uint64_t name_length,
                                                    std::uint64_t size) const noexcept {
  if (alignment == 0) return std::nullopt;
  std::uint64_t start = local_header_bytes + padding_field_bytes + name_length;
  start += zip64_field_bytes(size, header_offset);
  if (!bytes::checked_add(start, header_offset, &start)) return std::nullopt;
  const std::uint64_t beyond = remainder(start, alignment);
  const std::uint64_t padding = beyond == 0 ? 0 : alignment - beyond;
  if (!bytes::checked_add(start, padding, &start)) return std::nullopt;
  return start;
}

std::optional<std::uint64_t> Layout::record_end(std::uint64_t header_offset,
                                                std::uint64_t payload_offset,
                                                std::uint64_t stored_size,
                                                std::uint64_t size) noexcept {
  std::uint64_t end = 0;
  if (!bytes::checked_add(payload_offset, stored_size, &end) ||
      !bytes::checked_add(end, footer_bytes(size, header_offset), &end))
    return std::nullopt;
  return end;
}

}  // namespace weightmap::zip
