#include "runtime/base/zip/storage_offsets.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/layout.hpp"
#include "runtime/base/zip/local_header.hpp"
#include "runtime/base/zip/record_bytes.hpp"

namespace weightmap::zip {
namespace {

class StorageLocator {
 public:
  StorageLocator(const Directory& directory, std::span<const StorageRequest> requests,
                 const LocateOptions& options, bytes::ReadCache& cache, OpenStats& stats)
      : directory_(directory),
        records_(directory.records()),
        requests_(requests),
        prefix_(std::string(directory.top_folder()) + std::string(StorageNumbers::folder)),
        layout_{options.alignment},
        cache_(cache),
        stats_(stats) {}

  Result<void> run(std::pmr::vector<StorageExtent>& extents);

 private:
  bool is_named(const Record& record, std::string_view key) const noexcept;
  Result<std::uint32_t> find(std::string_view key) const;
  Result<bool> match(std::pmr::vector<StorageExtent>& extents) const;
  Result<void> place_first(StorageExtent& extent);
  Result<void> place(StorageExtent& extent);
  Result<void> place_by_header(StorageExtent& extent);
  void count(OffsetStrategy strategy) noexcept;

  const Directory& directory_;
  std::span<const Record> records_;
  std::span<const StorageRequest> requests_;
  std::string prefix_;  // common prefix of the storages' names: "archive/data/"
  Layout layout_;
  bytes::ReadCache& cache_;
  OpenStats& stats_;
  std::optional<std::uint64_t> next_header_;  // end of the storage that was placed last
};

bool StorageLocator::is_named(const Record& record, std::string_view key) const noexcept {
  return record.name_length == prefix_.size() + key.size() &&
         std::memcmp(record.name + prefix_.size(), key.data(), key.size()) == 0 &&
         std::memcmp(record.name, prefix_.data(), prefix_.size()) == 0;
}

Result<std::uint32_t> StorageLocator::find(std::string_view key) const {
  const std::string name = std::string(directory_.top_folder()) + storage_record(key);
  const Record* record =
      directory_.find(std::string_view(name).substr(directory_.top_folder().size()));
  if (record == nullptr)
    return failure(ErrorCode::corrupt, "the pickle refers to record " + bytes::quote(name) +
                                           ", which the archive does not have");
  return static_cast<std::uint32_t>(record - records_.data());
}

// Independent of the record's method.
bool fits(const StorageRequest& request, const Record& record) noexcept {
  return record.size >= request.nbytes && record.size - request.nbytes < request.element_size;
}

bool is_folder(const Record& record) noexcept { return record.full_name().back() == '/'; }

// Returns the error for a record that does not fit.
tl::unexpected<Error> misfit(const StorageRequest& request, const Record& record) {
  const std::string why = is_folder(record)
                              ? "is a folder, expected a storage"
                              : "has " + bytes::counted(record.size, "byte") +
                                    ", the pickle says " + std::to_string(request.nbytes);
  return failure(ErrorCode::corrupt, "record " + bytes::quote(record.full_name()) + " " + why,
                 record.header_offset);
}

// Finds and checks the record of each request. Returns true if they ascend in directory order. In a
// torch.save file the requests' records follow one another.
Result<bool> StorageLocator::match(std::pmr::vector<StorageExtent>& extents) const {
  std::size_t index = 0;
  bool ascending = true;
  for (const StorageRequest& request : requests_) {
    const std::size_t expected = index;
    const std::uint32_t numbered = directory_.storages().find(request.number);
    if (numbered != StorageNumbers::none) {
      index = numbered;
    } else if (index >= records_.size() || !is_named(records_[index], request.key)) {
      TRY_ASSIGN(index, find(request.key));
    }
    const Record& record = records_[index];
    if (!fits(request, record) || (numbered == StorageNumbers::none && is_folder(record)))
      return misfit(request, record);
    ascending = ascending && index >= expected;
    extents.push_back({0, record.size, record.crc32, static_cast<std::uint32_t>(index)});
    ++index;
  }
  return ascending;
}

void StorageLocator::count(OffsetStrategy strategy) noexcept {
  stats_.strategy = std::max(stats_.strategy, strategy);
  if (strategy == OffsetStrategy::calculated) ++stats_.storages_calculated;
  if (strategy == OffsetStrategy::directory) ++stats_.storages_by_directory;
  if (strategy == OffsetStrategy::headers) ++stats_.storages_by_header;
}

Result<void> StorageLocator::place_by_header(StorageExtent& extent) {
  const Record& record = records_[extent.record];
  ++stats_.local_headers_read;
  TRY_ASSIGN(extent.payload_offset, read_local_header(cache_, record, directory_.limit_of(record)));
  return {};
}

// The first offset is read, never computed; the neighbour has to confirm it.
Result<void> StorageLocator::place_first(StorageExtent& extent) {
  TRY(place_by_header(extent));
  const Record& record = records_[extent.record];
  const auto by_rule = payload_by_rule(directory_, record, layout_);
  const bool proven = by_rule == extent.payload_offset;
  if (by_rule && !proven) return contradicts_rule(record, extent.payload_offset, *by_rule);
  if (proven) next_header_ = directory_.limit_of(record);
  count(proven ? OffsetStrategy::calculated : OffsetStrategy::headers);
  return {};
}

Result<void> StorageLocator::place(StorageExtent& extent) {
  const Record& record = records_[extent.record];
  const auto payload = payload_by_rule(directory_, record, layout_);
  if (!payload) {
    count(OffsetStrategy::headers);
    return place_by_header(extent);
  }
  const bool linked = next_header_ == record.header_offset;
  count(linked ? OffsetStrategy::calculated : OffsetStrategy::directory);
  extent.payload_offset = *payload;
  next_header_ = directory_.limit_of(record);
  return {};
}

Result<void> StorageLocator::run(std::pmr::vector<StorageExtent>& extents) {
  extents.reserve(requests_.size());
  TRY_ASSIGN(const bool ascending, match(extents));
  std::vector<std::uint32_t> order;
  if (!ascending) {
    order.resize(extents.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return extents[a].record < extents[b].record;
    });
  }
  for (std::size_t i = 0; i < extents.size(); ++i) {
    StorageExtent& extent = extents[order.empty() ? i : order[i]];
    TRY(i == 0 ? place_first(extent) : place(extent));
  }
  return {};
}

}  // namespace

std::string storage_record(std::string_view key) {
  const bool is_whole_name = key.find('/') != std::string_view::npos;
  return std::string(is_whole_name ? std::string_view{} : StorageNumbers::folder).append(key);
}

Result<void> verify_extents(const Directory& directory, std::span<const StorageExtent> extents,
                            const bytes::ByteSource& source, OpenStats& stats) {
  for (const StorageExtent& extent : extents) {
    const Record& record = directory.records()[extent.record];
    ++stats.local_headers_verified;
    ++stats.verify_reads;
    stats.verify_bytes_read += local_header_length(record);
    TRY_ASSIGN(const std::uint64_t payload,
               read_local_header(source, record, directory.limit_of(record)));
    if (payload == extent.payload_offset) continue;
    return failure(ErrorCode::corrupt,
                   "record " + bytes::quote(record.full_name()) + " was calculated to begin at " +
                       std::to_string(extent.payload_offset) + ", its local header says " +
                       std::to_string(payload),
                   record.header_offset);
  }
  return {};
}

Result<std::pmr::vector<StorageExtent>> locate_storages(
    const Directory& directory, std::span<const StorageRequest> requests,
    const LocateOptions& options, bytes::ReadCache& cache, const bytes::ByteSource& verify_source,
    OpenStats& stats, std::pmr::memory_resource& memory) {
  std::pmr::vector<StorageExtent> extents(&memory);
  StorageLocator locator(directory, requests, options, cache, stats);
  TRY(locator.run(extents));
  if (options.verify_headers) TRY(verify_extents(directory, extents, verify_source, stats));
  return extents;
}

}  // namespace weightmap::zip
