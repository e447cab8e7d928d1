// The content of one record, in memory: for data.pkl and the small records around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/bytes/buffer.hpp"
#include "runtime/bytes/read_cache.hpp"
#include "runtime/zip/directory.hpp"
#include "runtime/zip/layout.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

struct RecordBytes {
  // In a window, or inflated and owned by this object.
  std::span<const std::byte> bytes;
  // Absolute, of the payload in the file.
  std::uint64_t file_offset = 0;
  bytes::Buffer inflated;

  // The memory that `bytes` lies in; takes it from `cache` if it is a window.
  bytes::Buffer release(bytes::ReadCache& cache) && noexcept;
};

// Absolute offset of the record's payload by torch's padding rule, without reading: only if the
// record then ends exactly at `limit`, where its neighbour begins. nullopt where the rule does not
// explain it.
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

// For a local header that places the payload elsewhere than the rule does. The rule explains the
// record to the byte, so one of the two lies, and readers differ in which of them they believe.
[[gnu::cold]] tl::unexpected<Error> contradicts_rule(const Record& record, std::uint64_t by_header,
                                                     std::uint64_t by_rule);

// The record's content after inflating, compared with its CRC-32 unless that is 0, which means that
// the writer did not compute it. Its local header is always compared with the directory. Reads
// nothing that a window already holds, and header and content at once where the padding rule
// explains the record. Fails with limit_exceeded if it is longer than `max_bytes`.
Result<RecordBytes> read_record(const Directory& directory, const Record& record,
                                bytes::ReadCache& cache, std::uint64_t max_bytes);

// The same, whatever its CRC-32 is.
Result<RecordBytes> read_unsummed(const Directory& directory, const Record& record,
                                  bytes::ReadCache& cache, std::uint64_t max_bytes);

}  // namespace weightmap::zip
