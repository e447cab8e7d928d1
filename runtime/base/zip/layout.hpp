// The arithmetic of torch's zip layout, for readers and writers.
//
// A record is  local header (30) · name · [zip64 field] · "FB" field · payload · [data descriptor].
// The FB field ("FB", u16 length, that many bytes) pads so that the payload starts at a multiple of
// the alignment. The zip64 field and the longer descriptor appear when the size or the offset of
// the header is >= 0xFFFFFFFF; an empty record has no descriptor. So the place of the payload
// follows from the place of the header, the length of the name and the size, and the place of the
// next header follows from that: nothing has to be read. Offsets count from the start of the
// archive.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/zip/signatures.hpp"

namespace weightmap::zip {

struct Layout {
  static constexpr std::uint64_t default_alignment = 64;
  static constexpr std::uint64_t zip64_threshold = 0xFFFFFFFF;
  static constexpr std::uint64_t padding_field_bytes =
      4;  // "FB" and its length, before the padding

  // Alignment of payloads in bytes. Not 0; need not be a power of two.
  std::uint64_t alignment = default_alignment;

  static constexpr bool needs_zip64(std::uint64_t size, std::uint64_t header_offset) noexcept {
    return size >= zip64_threshold || header_offset >= zip64_threshold;
  }
  // Length of the zip64 field in the local header and in the directory: 0, 12, 20 or 28.
  static constexpr std::uint64_t zip64_field_bytes(std::uint64_t size,
                                                   std::uint64_t header_offset) noexcept {
    if (!needs_zip64(size, header_offset)) return 0;
    return 4u + (size >= zip64_threshold ? 16u : 0u) + (header_offset >= zip64_threshold ? 8u : 0u);
  }
  // Length of the data descriptor: 0, 16 or 24.
  static constexpr std::uint64_t footer_bytes(std::uint64_t size,
                                              std::uint64_t header_offset) noexcept {
    if (size == 0) return 0;
    return needs_zip64(size, header_offset) ? 24 : 16;
  }

  // Returns nullopt if the sum does not fit 64 bits, or the alignment is 0.
  constexpr std::optional<std::uint64_t> payload_offset(std::uint64_t header_offset,
                                                        std::uint64_t name_length,
                                                        std::uint64_t size) const noexcept {
    if (alignment == 0) return std::nullopt;
    std::uint64_t start = local_header_bytes + padding_field_bytes + name_length;
    start += zip64_field_bytes(size, header_offset);
    if (!bytes::checked_add(start, header_offset, &start)) return std::nullopt;
    const std::uint64_t beyond = over_alignment(start);
    if (!bytes::checked_add(start, beyond == 0 ? 0 : alignment - beyond, &start))
      return std::nullopt;
    return start;
  }

  // Payload and end of a stored record that needs no zip64 fields, with an alignment that is a
  // power of two: the results of payload_offset() and record_end() without their branches.
  // Precondition: is_plain(size, header_offset).
  struct Place {
    std::uint64_t payload;
    std::uint64_t end;
  };
  constexpr bool is_plain(std::uint64_t size, std::uint64_t header_offset) const noexcept {
    return (size | header_offset) < zip64_threshold && alignment - 1 < 65536 &&
           (alignment & (alignment - 1)) == 0;
  }
  constexpr Place plain_place(std::uint64_t header_offset, std::uint64_t name_length,
                              std::uint64_t size) const noexcept {
    const std::uint64_t start =
        header_offset + local_header_bytes + padding_field_bytes + name_length;
    const std::uint64_t payload = (start + alignment - 1) & ~(alignment - 1);
    return {payload, payload + size + (size == 0 ? 0 : 16)};
  }

  // Returns the offset of the next record's header. `stored_size` is the size of the payload,
  // `size` its inflated size, which decides about zip64.
  static constexpr std::optional<std::uint64_t> record_end(std::uint64_t header_offset,
                                                           std::uint64_t payload_offset,
                                                           std::uint64_t stored_size,
                                                           std::uint64_t size) noexcept {
    std::uint64_t end = 0;
    if (!bytes::checked_add(payload_offset, stored_size, &end) ||
        !bytes::checked_add(end, footer_bytes(size, header_offset), &end))
      return std::nullopt;
    return end;
  }

 private:
  // A division costs as much as the rest; nearly every alignment is a power of two.
  constexpr std::uint64_t over_alignment(std::uint64_t offset) const noexcept {
    return (alignment & (alignment - 1)) == 0 ? offset & (alignment - 1) : offset % alignment;
  }
};

}  // namespace weightmap::zip
