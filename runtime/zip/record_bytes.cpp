#include "runtime/zip/record_bytes.hpp"

#include <string>
#include <utility>

#include "runtime/bytes/escape.hpp"
#include "runtime/zip/crc32.hpp"
#include "runtime/zip/inflate.hpp"
#include "runtime/zip/local_header.hpp"

namespace weightmap::zip {
namespace {

tl::unexpected<Error> about(const Record& record, std::uint64_t payload, ErrorCode code,
                            const std::string& what) {
  return failure(code, "record " + bytes::quote(record.full_name()) + ": " + what, payload);
}

Result<std::uint64_t> find_payload(const Directory& directory, const Record& record,
                                   bytes::Windows& windows) {
  if (const auto payload = payload_by_rule(directory, record, Layout{})) return *payload;
  return read_local_header(windows, record, directory.limit_of(record));
}

Result<bytes::Buffer> inflate_record(std::span<const std::byte> stored, const Record& record,
                                     std::uint64_t payload, bytes::Windows& windows) {
  if (record.size > max_inflated_size(record.stored_size))
    return about(record, payload, ErrorCode::corrupt,
                 std::to_string(record.stored_size) + " compressed bytes cannot become " +
                     std::to_string(record.size));
  bytes::Buffer inflated(record.size, windows.memory());
  if (Result<void> ok = inflate(stored, inflated.span()); !ok)
    return about(record, payload, ok.error().code, ok.error().message);
  return inflated;
}

Result<void> check_crc(const RecordBytes& content, const Record& record) {
  if (record.crc32 == 0) return {};
  const std::uint32_t found = crc32(content.bytes);
  if (found == record.crc32) return {};
  return about(record, content.file_offset, ErrorCode::corrupt,
               "its CRC-32 is " + std::to_string(found) + ", the directory says " +
                   std::to_string(record.crc32));
}

}  // namespace

bytes::Buffer RecordBytes::release(bytes::Windows& windows) && noexcept {
  return inflated.size() != 0 ? std::move(inflated) : windows.take(bytes);
}

std::optional<std::uint64_t> payload_by_rule(const Directory& directory, const Record& record,
                                             const Layout& layout) noexcept {
  if (record.has_descriptor != (record.size > 0)) return std::nullopt;
  const std::uint64_t start = directory.archive_start();
  const std::uint64_t header = record.header_offset - start;
  const auto payload = layout.payload_offset(header, record.name_length, record.size);
  if (!payload) return std::nullopt;
  const auto end = Layout::record_end(header, *payload, record.stored_size, record.size);
  if (!end || *end != directory.limit_of(record) - start) return std::nullopt;
  return *payload + start;
}

Result<RecordBytes> read_record(const Directory& directory, const Record& record,
                                bytes::Windows& windows, std::uint64_t max_bytes) {
  if (record.size > max_bytes)
    return about(record, record.header_offset, ErrorCode::limit_exceeded,
                 "it has " + std::to_string(record.size) + " bytes, the limit is " +
                     std::to_string(max_bytes));
  const Result<std::uint64_t> payload = find_payload(directory, record, windows);
  if (!payload) return tl::unexpected<Error>(payload.error());
  const auto stored = windows.bytes(*payload, record.stored_size);
  if (!stored) return tl::unexpected<Error>(stored.error());
  RecordBytes content;
  content.bytes = *stored;
  content.file_offset = *payload;
  if (record.method == Method::deflated) {
    auto inflated = inflate_record(*stored, record, *payload, windows);
    if (!inflated) return tl::unexpected<Error>(inflated.error());
    content.inflated = std::move(*inflated);
    content.bytes = std::as_const(content.inflated).span();
  }
  if (Result<void> ok = check_crc(content, record); !ok) return tl::unexpected<Error>(ok.error());
  return content;
}

}  // namespace weightmap::zip
