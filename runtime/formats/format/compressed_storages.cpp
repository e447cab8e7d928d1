#include "runtime/formats/format/compressed_storages.hpp"

#include <limits>
#include <string>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/deflate.hpp"

namespace weightmap::format {
namespace {

constexpr std::uint64_t alignment = 64;  // of each, as torch.save aligns them

Result<void> check_size(const zip::Record& record) {
  if (record.size <= zip::max_inflated_size(record.stored_size)) return {};
  return failure(ErrorCode::corrupt,
                 "record " + bytes::quote(record.full_name()) + ": " +
                     bytes::counted(record.stored_size, "compressed byte") + " cannot become " +
                     std::to_string(record.size),
                 record.header_offset);
}

// Sums over the deflated records.
struct Total {
  std::uint64_t inflated = 0;
  std::uint64_t stored = 0;

  tl::unexpected<Error> exceeds(const std::string& limit) const {
    return failure(ErrorCode::limit_exceeded, "compressed storages of " +
                                                  bytes::counted(stored, "byte") +
                                                  " become more than " + limit + " in memory");
  }
  // Records do not overlap, so what is stored is less than the file.
  Result<void> add(const zip::Record& record, const Limits& limits) {
    stored += record.stored_size;
    if (!bytes::checked_add(inflated, record.size, &inflated) || inflated > limits.copied_bytes)
      return exceeds(bytes::counted(limits.copied_bytes, "byte") + " (copied_bytes)");
    return {};
  }
  Result<void> check_ratio(const Limits& limits) const {
    std::uint64_t most = 0;
    if (!bytes::checked_mul(stored, limits.copied_ratio, &most))
      most = std::numeric_limits<std::uint64_t>::max();
    if (inflated <= limits.record_bytes || inflated <= most) return {};
    return exceeds(std::to_string(limits.copied_ratio) + " times as many (copied_ratio)");
  }
};

}  // namespace

std::string CompressedStorage::description() const {
  return record.empty() ? "an array at byte " + std::to_string(file_offset) + " is spelled as text"
                        : "record " + bytes::quote(record) + " is compressed";
}

const char* CompressedStorage::advice() const noexcept {
  return record.empty() ? "pickle it again with protocol 3 or later"
                        : "weightmap convert writes the file again without compression";
}

Result<std::vector<CompressedStorage>> place_compressed(const zip::Directory& directory,
                                                        std::span<zip::StorageExtent> extents,
                                                        const Limits& limits, std::uint64_t base) {
  std::vector<CompressedStorage> compressed;
  Total total;
  std::uint64_t at = base;
  for (zip::StorageExtent& extent : extents) {
    const zip::Record& record = directory.records()[extent.record];
    if (record.method != zip::Method::deflated) continue;
    TRY(check_size(record));
    TRY(total.add(record, limits));
    std::uint64_t end = 0;
    if (!bytes::checked_add(at, record.size, &end) || !bytes::checked_add(end, alignment - 1, &end))
      return total.exceeds("an address space holds");
    compressed.push_back({std::string(record.full_name()), extent.payload_offset,
                          record.stored_size, at, record.size, record.crc32});
    extent.payload_offset = at;
    at = end / alignment * alignment;
  }
  TRY(total.check_ratio(limits));
  return compressed;
}

}  // namespace weightmap::format
