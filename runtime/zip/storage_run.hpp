// The storages of an archive as one torch.save wrote them: "data/0", "data/1", ..., one record
// behind the other in any order, each placed by the padding rule.
//
// The short way to what locate_storages() finds out: it says the same about such archives, and
// nothing about others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/bytes/windows.hpp"
#include "runtime/zip/directory.hpp"
#include "runtime/zip/layout.hpp"
#include "runtime/zip/record_bytes.hpp"
#include "runtime/zip/storage_offsets.hpp"
#include "weightmap/stats.hpp"

namespace weightmap::zip {

class StorageRun {
 public:
  // Reads the local header of the first record of the run and compares it with the rule. nullopt if
  // there is no run, or the header says something else. `directory` must outlive the run, but
  // names may go: they are not looked at again.
  static std::optional<StorageRun> find(const Directory& directory, std::uint64_t alignment,
                                        bytes::Windows& windows);

  std::uint32_t count() const noexcept { return numbers_.count(); }
  // Where a storage is, whose record must be as StorageRequest says. False if it is not, or if the
  // rule does not explain the record. Precondition: number < count().
  bool place(std::uint32_t number, std::uint64_t nbytes, std::uint64_t element_size,
             StorageExtent& extent) const noexcept {
    const std::uint32_t index = numbers_.find(number);
    const Record& record = records_[index];
    if (record.method != Method::stored || record.size < nbytes ||
        record.size - nbytes >= element_size)
      return false;
    const std::uint64_t limit =
        index + 1 < records_.size() ? records_[index + 1].header_offset : end_;
    const auto payload = payload_by_rule(record, limit, archive_start_, layout_);
    if (!payload) return false;
    extent = {*payload, record.size, record.crc32, index};
    return true;
  }
  // Counts what locate_storages() counts where all of them are requested.
  void count_into(OpenStats& stats) const noexcept;
  // All of them, by number. Precondition: the rule explains each.
  std::vector<StorageExtent> extents() const;

 private:
  StorageRun(const Directory& directory, std::uint64_t alignment) noexcept
      : records_(directory.records()),
        numbers_(directory.storages()),
        end_(directory.offset()),
        archive_start_(directory.archive_start()),
        layout_{alignment} {}

  std::span<const Record> records_;
  StorageNumbers numbers_;
  std::uint64_t end_;  // of the last record
  std::uint64_t archive_start_;
  Layout layout_;
};

}  // namespace weightmap::zip
