// One entry of the central directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/zip/record.hpp"
#include "runtime/base/zip/signatures.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

// Offsets of fields in the fixed part of an entry.
namespace entry_fields {
inline constexpr std::size_t flags = 8;
inline constexpr std::size_t method = 10;
inline constexpr std::size_t crc = 16;
inline constexpr std::size_t stored_size = 20;
inline constexpr std::size_t size = 24;
inline constexpr std::size_t name_length = 28;  // then lengths of extra fields and comment, disk
inline constexpr std::size_t extra_length = 30;
inline constexpr std::size_t comment_length = 32;
inline constexpr std::size_t disk = 34;
inline constexpr std::size_t header_offset = 42;
}  // namespace entry_fields

// The place of an entry, for messages and for its offsets.
struct EntryPlace {
  std::uint64_t offset;         // absolute, of the entry
  std::uint64_t archive_start;  // base of its header offset
  bool keeps_unread = false;    // a method that is not read is no fault
};

// Parses the entry at the front of `rest`, which ends with the directory, into `record`, whose name
// points into `rest`. Returns the length of the entry. Checks what the entry alone can show:
// method, flags, sizes, zip64 field, name.
Result<std::size_t> parse_entry(std::span<const std::byte> rest, const EntryPlace& place,
                                Record& record);

// Fast path for the entry that torch writes for a storage: stored, with neither extra fields nor a
// comment. It does not check the bytes of the name. Returns 0 for any other entry and for an
// invalid one; parse_entry() then reports the fault. All checks are one branch, since an archive
// may have 100,000 entries.
inline std::size_t parse_plain_entry(std::span<const std::byte> rest, std::uint64_t archive_start,
                                     Record& record) noexcept {
  using bytes::load_le;
  if (rest.size() < central_entry_bytes) return 0;
  const std::byte* const entry = rest.data();
  const auto flags_and_method = load_le<std::uint32_t>(entry + entry_fields::flags);
  const auto sizes = load_le<std::uint64_t>(entry + entry_fields::stored_size);
  const auto size = static_cast<std::uint32_t>(sizes);
  const auto lengths = load_le<std::uint64_t>(entry + entry_fields::name_length);
  const auto name_length = static_cast<std::uint16_t>(lengths);
  const auto header_offset = load_le<std::uint32_t>(entry + entry_fields::header_offset);
  constexpr std::uint32_t must_be_0 = 0xFFFF0000 | refused_flags;  // method: stored
  if (load_le<std::uint32_t>(entry) != central_signature || (flags_and_method & must_be_0) != 0 ||
      sizes >> 32 != size || size == in_zip64_32 || lengths != name_length || name_length == 0 ||
      name_length > rest.size() - central_entry_bytes || header_offset == in_zip64_32)
    return 0;
  record = {header_offset,
            size,
            size,
            reinterpret_cast<const char*>(entry + central_entry_bytes),
            load_le<std::uint32_t>(entry + entry_fields::crc),
            name_length,
            Method::stored,
            (flags_and_method & flag_descriptor) != 0};
  if (!bytes::checked_add(record.header_offset, archive_start, &record.header_offset)) return 0;
  return central_entry_bytes + name_length;
}

}  // namespace weightmap::zip
