#include "runtime/base/zip/record_bytes.hpp"

#include <string>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/base/zip/deflate.hpp"
#include "runtime/base/zip/local_header.hpp"

namespace weightmap::zip {
namespace {

tl::unexpected<Error> about(const Record& record, std::uint64_t payload, ErrorCode code,
                            const std::string& what) {
  return failure(code, "record " + bytes::quote(record.full_name()) + ": " + what, payload);
}

// Returns the payload's place by the local header. Where the padding rule predicts it, one read
// covers header and payload.
Result<std::uint64_t> find_payload(const Directory& directory, const Record& record,
                                   bytes::ReadCache& cache) {
  const auto by_rule = payload_by_rule(directory, record, Layout{});
  if (by_rule)
    TRY(cache.bytes(record.header_offset, *by_rule + record.stored_size - record.header_offset));
  TRY_ASSIGN(const std::uint64_t payload,
             read_local_header(cache, record, directory.limit_of(record)));
  if (by_rule && payload != *by_rule) return contradicts_rule(record, payload, *by_rule);
  return payload;
}

Result<bytes::Buffer> inflate_record(std::span<const std::byte> stored, const Record& record,
                                     std::uint64_t payload, bytes::ReadCache& cache) {
  if (record.size > max_inflated_size(record.stored_size))
    return about(record, payload, ErrorCode::corrupt,
                 std::to_string(record.stored_size) + " compressed bytes cannot become " +
                     std::to_string(record.size));
  bytes::Buffer inflated(record.size, cache.memory());
  if (Result<void> ok = inflate(stored, inflated.span()); !ok)
    return about(record, payload, ok.error().code, ok.error().message);
  return inflated;
}

Result<void> check_crc(const RecordBytes& content, const Record& record) {
  if (record.crc32 == 0) return {};
  const std::uint32_t found = crc32(content.bytes);
  if (found == record.crc32) return {};
  return failure(ErrorCode::corrupt,
                 "record " + bytes::quote(record.full_name()) + crc_mismatch(found, record.crc32),
                 content.file_offset);
}

}  // namespace

bytes::Buffer RecordBytes::release(bytes::ReadCache& cache) && noexcept {
  return inflated.size() != 0 ? std::move(inflated) : cache.take(bytes);
}

tl::unexpected<Error> contradicts_rule(const Record& record, std::uint64_t by_header,
                                       std::uint64_t by_rule) {
  return failure(ErrorCode::corrupt,
                 "record " + bytes::quote(record.full_name()) + " begins at byte " +
                     std::to_string(by_header) + " by its local header, but at " +
                     std::to_string(by_rule) + " by the record behind it",
                 record.header_offset);
}

Result<RecordBytes> read_unsummed(const Directory& directory, const Record& record,
                                  bytes::ReadCache& cache, std::uint64_t max_bytes) {
  if (record.size > max_bytes)
    return about(record, record.header_offset, ErrorCode::limit_exceeded,
                 "it has " + std::to_string(record.size) + " bytes, the limit is " +
                     std::to_string(max_bytes));
  TRY_ASSIGN(const std::uint64_t payload, find_payload(directory, record, cache));
  RecordBytes content;
  content.file_offset = payload;
  TRY_ASSIGN(content.bytes, cache.bytes(payload, record.stored_size));
  if (record.method == Method::deflated) {
    TRY_ASSIGN(content.inflated, inflate_record(content.bytes, record, payload, cache));
    content.bytes = std::as_const(content.inflated).span();
  }
  return content;
}

Result<RecordBytes> read_record(const Directory& directory, const Record& record,
                                bytes::ReadCache& cache, std::uint64_t max_bytes) {
  TRY_ASSIGN(RecordBytes content, read_unsummed(directory, record, cache, max_bytes));
  TRY(check_crc(content, record));
  return content;
}

}  // namespace weightmap::zip
