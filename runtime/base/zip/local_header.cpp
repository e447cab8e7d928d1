#include "runtime/base/zip/local_header.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/bytes/byte_cursor.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/signatures.hpp"

namespace weightmap::zip {
namespace {

struct Fields {
  std::uint32_t signature;
  std::uint16_t flags;
  std::uint16_t method;
  std::uint32_t stored_size;
  std::uint32_t size;
  std::uint16_t name_length;
  std::uint16_t extra_length;
};

Fields read_fields(bytes::ByteCursor& cursor) {
  Fields fields{};
  fields.signature = cursor.u32();
  cursor.skip(2);  // version
  fields.flags = cursor.u16();
  fields.method = cursor.u16();
  cursor.skip(4 + 4);  // time and date, CRC
  fields.stored_size = cursor.u32();
  fields.size = cursor.u32();
  fields.name_length = cursor.u16();
  fields.extra_length = cursor.u16();
  return fields;
}

tl::unexpected<Error> differs(const Record& record, const std::string& what) {
  return failure(ErrorCode::corrupt,
                 "the local header of record " + bytes::quote(record.full_name()) + " " + what,
                 record.header_offset);
}

std::string expected(const std::string& field, std::uint64_t found, std::uint64_t wanted) {
  return "has " + field + " " + std::to_string(found) + ", the directory says " +
         std::to_string(wanted);
}

// With a descriptor the sizes here may be 0 or anything; a zip64 record has the sentinel.
bool contradicts(std::uint32_t local, std::uint64_t directory) noexcept {
  return local != directory && local != in_zip64_32;
}

Result<void> check_fields(const Fields& local, const Record& record) {
  const auto method = static_cast<std::uint16_t>(record.method);
  if (local.method != method)
    return differs(record, expected("compression method", local.method, method));
  if ((local.flags & refused_flags) != 0)
    return differs(record, "says that it is encrypted or patch data, the directory does not");
  if (((local.flags & flag_descriptor) != 0) != record.has_descriptor)
    return differs(record, "and the directory disagree about a data descriptor");
  if (record.has_descriptor) return {};
  if (contradicts(local.stored_size, record.stored_size))
    return differs(record, expected("stored size", local.stored_size, record.stored_size));
  if (contradicts(local.size, record.size))
    return differs(record, expected("size", local.size, record.size));
  return {};
}

Result<void> check_name(bytes::ByteCursor& cursor, const Fields& local, const Record& record) {
  if (local.name_length != record.name_length)
    return differs(record, expected("a name length of", local.name_length, record.name_length));
  const auto name = cursor.take(record.name_length);
  const std::string_view text(reinterpret_cast<const char*>(name.data()), name.size());
  if (text != record.full_name()) return differs(record, "has the name " + bytes::quote(text));
  return {};
}

}  // namespace

std::uint64_t local_header_length(const Record& record) noexcept {
  return local_header_bytes + record.name_length;
}

Result<std::uint64_t> parse_local_header(std::span<const std::byte> header, const Record& record,
                                         std::uint64_t limit) {
  bytes::ByteCursor cursor(header);
  const Fields local = read_fields(cursor);
  if (local.signature != local_header_signature)
    return failure(ErrorCode::corrupt,
                   "no local header of record " + bytes::quote(record.full_name()) +
                       " where the directory says it is",
                   record.header_offset);
  TRY(check_name(cursor, local, record));
  TRY(check_fields(local, record));
  // The directory has proven that header, name and payload fit the file, so this sum does not wrap.
  const std::uint64_t payload =
      record.header_offset + local_header_length(record) + local.extra_length;
  if (!bytes::contains(limit, payload, record.stored_size))
    return differs(record, "has " + bytes::counted(local.extra_length, "byte") +
                               " of extra fields, which push the payload of " +
                               bytes::counted(record.stored_size, "byte") + " beyond byte " +
                               std::to_string(limit) + ", where the record ends");
  return payload;
}

Result<std::uint64_t> read_local_header(bytes::ReadCache& cache, const Record& record,
                                        std::uint64_t limit) {
  std::vector<std::byte> header(local_header_length(record));
  TRY(cache.copy(record.header_offset, header));
  return parse_local_header(header, record, limit);
}

Result<std::uint64_t> read_local_header(const bytes::ByteSource& source, const Record& record,
                                        std::uint64_t limit) {
  std::vector<std::byte> header(local_header_length(record));
  TRY(source.read(record.header_offset, header));
  return parse_local_header(header, record, limit);
}

}  // namespace weightmap::zip
