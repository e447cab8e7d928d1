// The content of one record, in memory: for data.pkl and the small records around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/base/bytes/buffer.hpp"
#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/zip/directory.hpp"
#include "runtime/base/zip/layout.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

struct RecordBytes {
  // Points into a window, or into `inflated`.
  std::span<const std::byte> bytes;
  // Absolute offset of the payload in the file.
  std::uint64_t file_offset = 0;
  bytes::Buffer inflated;

  // Hands over the memory of `bytes`, which a window of `windows` may own.
  bytes::Buffer release(bytes::ReadCache& cache) && noexcept;
};

// Returns the absolute offset of the record's payload by torch's padding rule, without reading.
// nullopt unless the record then ends exactly at `limit`, where its neighbour begins.
inline std::optional<std::uint64_t> payload_by_rule(const Record& record, std::uint64_t limit,
                                                    std::uint64_t archive_start,
                                                    const Layout& layout) noexcept {
  if (record.has_descriptor != (record.size > 0)) return std::nullopt;
  const std::uint64_t header = record.header_offset - archive_start;
  if (record.method == Method::stored && layout.is_plain(record.size, header)) [[likely]] {
    const Layout::Place place = layout.plain_place(header, record.name_length, record.size);
    if (place.end != limit - archive_start) return std::nullopt;
    return place.payload + archive_start;
  }
  const auto payload = layout.payload_offset(header, record.name_length, record.size);
  if (!payload) return std::nullopt;
  const auto end = Layout::record_end(header, *payload, record.stored_size, record.size);
  if (!end || *end != limit - archive_start) return std::nullopt;
  return *payload + archive_start;
}
inline std::optional<std::uint64_t> payload_by_rule(const Directory& directory,
                                                    const Record& record,
                                                    const Layout& layout) noexcept {
  return payload_by_rule(record, directory.limit_of(record), directory.archive_start(), layout);
}

// Returns the error for a local header that contradicts the rule. The rule explains the record to
// the byte, so one of the two is false, and readers differ in which one they follow.
[[gnu::cold]] tl::unexpected<Error> contradicts_rule(const Record& record, std::uint64_t by_header,
                                                     std::uint64_t by_rule);

// Returns the record's inflated content. Compares it with its CRC-32 unless that is 0, which means
// that the writer did not compute it, and always compares its local header with the directory.
// Reads nothing that a window already holds, and reads header and content at once where the padding
// rule explains the record. Fails with limit_exceeded if the content is longer than `max_bytes`.
Result<RecordBytes> read_record(const Directory& directory, const Record& record,
                                bytes::ReadCache& cache, std::uint64_t max_bytes);

// Does the same without comparing the CRC-32.
Result<RecordBytes> read_unsummed(const Directory& directory, const Record& record,
                                  bytes::ReadCache& cache, std::uint64_t max_bytes);

}  // namespace weightmap::zip
