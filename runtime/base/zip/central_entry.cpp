#include "runtime/base/zip/central_entry.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "runtime/base/bytes/byte_cursor.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/signatures.hpp"

namespace weightmap::zip {
namespace {

using bytes::load_le;

constexpr std::pair<std::uint16_t, std::string_view> unread_methods[] = {
    {1, "shrunk"},     {6, "imploded"}, {9, "deflate64"}, {12, "bzip2"},        {14, "LZMA"},
    {93, "Zstandard"}, {95, "xz"},      {98, "PPMd"},     {99, "AES-encrypted"}};

std::string_view method_name(std::uint16_t method) {
  for (const auto& [number, name] : unread_methods)
    if (number == method) return name;
  return "unknown";
}

[[gnu::cold]] tl::unexpected<Error> refuse(ErrorCode code, const Record& record,
                                           const std::string& why, const EntryPlace& place) {
  return failure(code, "record " + bytes::quote(record.full_name()) + " " + why, place.offset);
}

Result<void> check_kind(const std::byte* entry, const Record& record, const EntryPlace& place) {
  const auto flags = load_le<std::uint16_t>(entry + entry_fields::flags);
  if ((flags & (flag_encrypted | flag_strong_encryption | flag_masked)) != 0)
    return refuse(ErrorCode::unsupported, record, "is encrypted", place);
  if ((flags & flag_patch) != 0)
    return refuse(ErrorCode::unsupported, record, "is patch data", place);
  const auto method = load_le<std::uint16_t>(entry + entry_fields::method);
  if (method != 0 && method != 8)
    return refuse(ErrorCode::unsupported, record,
                  "has compression method " + std::to_string(method) + " (" +
                      std::string(method_name(method)) + "), only stored and deflated are read",
                  place);
  const auto disk = load_le<std::uint16_t>(entry + entry_fields::disk);
  if (disk != 0)
    return refuse(ErrorCode::unsupported, record, "is on disk " + std::to_string(disk), place);
  return {};
}

// Returns the zip64 field among the extra fields; empty if there is none.
Result<std::span<const std::byte>> find_zip64_field(std::span<const std::byte> extra,
                                                    const Record& record, const EntryPlace& place) {
  std::span<const std::byte> found;
  while (extra.size() >= 4) {
    const auto id = load_le<std::uint16_t>(extra.data());
    const auto length = load_le<std::uint16_t>(extra.data() + 2);
    extra = extra.subspan(4);
    if (length > extra.size())
      return refuse(ErrorCode::corrupt, record,
                    "has an extra field of " + std::to_string(length) + " bytes with only " +
                        std::to_string(extra.size()) + " left",
                    place);
    if (id == zip64_extra_id && found.data() != nullptr)
      return refuse(ErrorCode::corrupt, record, "has two zip64 fields", place);
    if (id == zip64_extra_id) found = extra.first(length);
    extra = extra.subspan(length);
  }
  return found;
}

// The zip64 field holds exactly the values whose own fields have the sentinel, in this order.
Result<void> widen(std::span<const std::byte> extra, Record& record, const EntryPlace& place) {
  std::uint64_t* const values[] = {&record.size, &record.stored_size, &record.header_offset};
  std::size_t expected = 0;
  for (const std::uint64_t* value : values)
    if (*value == in_zip64_32) expected += 8;
  if (extra.empty() && expected == 0) return {};
  TRY_ASSIGN(const auto field, find_zip64_field(extra, record, place));
  if (expected != 0 && field.size() != expected)
    return refuse(ErrorCode::corrupt, record,
                  "has a zip64 field of " + std::to_string(field.size()) + " bytes, expected " +
                      std::to_string(expected),
                  place);
  bytes::ByteCursor cursor(field);
  for (std::uint64_t* value : values)
    if (*value == in_zip64_32) *value = cursor.u64();
  return {};
}

Result<void> check_name(const Record& record, const EntryPlace& place) {
  if (record.name_length == 0)
    return failure(ErrorCode::corrupt, "a record has an empty name", place.offset);
  if (std::memchr(record.name, 0, record.name_length) != nullptr)
    return refuse(ErrorCode::corrupt, record, "has a zero byte in its name", place);
  return {};
}

Result<void> check_sizes(const Record& record, const EntryPlace& place) {
  if (record.method == Method::stored && record.stored_size != record.size)
    return refuse(ErrorCode::corrupt, record,
                  "is stored, but has " + std::to_string(record.stored_size) +
                      " bytes in the file and " + std::to_string(record.size) + " bytes in all",
                  place);
  return {};
}

Result<void> check(const std::byte* entry, Record& record, std::span<const std::byte> extra,
                   const EntryPlace& place) {
  TRY(check_name(record, place));
  if (Result<void> known = check_kind(entry, record, place); !known) {
    if (!place.keeps_unread) return known;
    record.method = Method::unread;
  }
  TRY(widen(extra, record, place));
  return check_sizes(record, place);
}

}  // namespace

Result<std::size_t> parse_entry(std::span<const std::byte> rest, const EntryPlace& place,
                                Record& record) {
  if (rest.size() < central_entry_bytes || load_le<std::uint32_t>(rest.data()) != central_signature)
    return failure(ErrorCode::corrupt, "the directory holds no entry where one is expected",
                   place.offset);
  const std::byte* const entry = rest.data();
  const std::size_t name_length = load_le<std::uint16_t>(entry + entry_fields::name_length);
  const std::size_t extra_length = load_le<std::uint16_t>(entry + entry_fields::extra_length);
  const std::size_t length = central_entry_bytes + name_length + extra_length +
                             load_le<std::uint16_t>(entry + entry_fields::comment_length);
  if (length > rest.size())
    return failure(ErrorCode::corrupt,
                   "an entry of " + std::to_string(length) + " bytes runs out of the directory",
                   place.offset);
  record = {load_le<std::uint32_t>(entry + entry_fields::header_offset),
            load_le<std::uint32_t>(entry + entry_fields::stored_size),
            load_le<std::uint32_t>(entry + entry_fields::size),
            reinterpret_cast<const char*>(entry + central_entry_bytes),
            load_le<std::uint32_t>(entry + entry_fields::crc),
            static_cast<std::uint16_t>(name_length),
            static_cast<Method>(load_le<std::uint16_t>(entry + entry_fields::method)),
            (load_le<std::uint16_t>(entry + entry_fields::flags) & flag_descriptor) != 0};
  const auto extra = rest.subspan(central_entry_bytes + name_length, extra_length);
  TRY(check(entry, record, extra, place));
  if (!bytes::checked_add(record.header_offset, place.archive_start, &record.header_offset))
    return refuse(ErrorCode::corrupt, record, "has a header offset beyond the file", place);
  return length;
}

}  // namespace weightmap::zip
