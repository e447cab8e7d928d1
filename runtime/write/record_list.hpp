// The records of a checkpoint that is to be written, in order, each with its content and its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/zip/plan.hpp"
#include "weightmap/archive_writer.hpp"
#include "weightmap/record_content.hpp"

namespace weightmap {

class RecordList {
 public:
  static Result<RecordList> make(std::string_view archive_name, std::uint64_t alignment);

  // Returns where the record's first byte will be. The content is borrowed.
  Result<std::uint64_t> add(std::string_view name, const RecordContent& content);
  // The same, at a multiple of `alignment`, a power of two that padding cannot reach: by a record
  // of zeros in front of it.
  Result<std::uint64_t> add_aligned(std::string_view name, const RecordContent& content,
                                    std::uint64_t alignment);
  // The bytes of the archive, with the records that ArchiveWriter writes at the end; to be called
  // once, after all add().
  Result<std::uint64_t> close();
  // Writes the records that were added, in this order.
  Result<void> write(ArchiveWriter& archive) const;

 private:
  explicit RecordList(zip::Plan plan) : plan_(std::move(plan)) {}

  zip::Plan plan_;
  std::vector<const RecordContent*> contents_;
  std::deque<RecordContent> fillers_;
};

}  // namespace weightmap
