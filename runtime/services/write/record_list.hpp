// The records of a planned checkpoint in order, each with its content and its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/zip/plan.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap {

class RecordList {
 public:
  // The name of a record that only shifts the next one to its place; a number follows.
  static constexpr std::string_view filler_name = ".data/padding/";

  // True if padding in the headers can reach this alignment; otherwise filler records are needed.
  static constexpr bool pads_only(std::uint64_t alignment) noexcept {
    return alignment <= zip::Plan::max_alignment;
  }

  // Fails with invalid_argument for an impossible alignment, see CheckpointWriterOptions, and for a
  // name as zip::Plan::make() does.
  static Result<RecordList> make(std::string_view archive_name, std::uint64_t alignment);

  // The alignment of all records by padding, which .storage_alignment states.
  std::uint64_t padding() const noexcept { return plan_.alignment(); }

  // Reserves memory for `count` records with names of about `name_bytes` in all.
  void reserve(std::size_t count, std::size_t name_bytes);
  // Returns the offset of the record's first byte. The content is borrowed.
  Result<std::uint64_t> add(std::string_view name, const RecordContent& content);
  // Does the same for a storage, with the alignment of make(): where padding cannot reach it, by a
  // filler record before it.
  Result<std::uint64_t> add_storage(std::string_view name, const RecordContent& content);
  // Returns the bytes of the archive, including the records that ArchiveWriter adds at the end.
  // Called once, after the last add().
  Result<std::uint64_t> close(std::uint64_t version = ArchiveWriter::default_version);
  // Writes the added records in order.
  Result<void> write(ArchiveWriter& archive) const;

 private:
  RecordList(zip::Plan plan, std::uint64_t alignment)
      : plan_(std::move(plan)), alignment_(alignment) {}

  zip::Plan plan_;
  std::uint64_t alignment_;
  std::vector<const RecordContent*> contents_;
  std::deque<RecordContent> fillers_;
};

}  // namespace weightmap
