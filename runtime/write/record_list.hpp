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
  // What records that only move others to their places are called, but for a number.
  static constexpr std::string_view filler_name = ".data/padding/";

  // Whether padding in the headers can align records so; else fillers must.
  static constexpr bool pads_only(std::uint64_t alignment) noexcept {
    return alignment <= zip::Plan::max_alignment;
  }

  // Fails with invalid_argument for an alignment that cannot be, see CheckpointWriterOptions, and
  // for a name as zip::Plan::make() does.
  static Result<RecordList> make(std::string_view archive_name, std::uint64_t alignment);

  // Of all records, by padding: what .storage_alignment says.
  std::uint64_t padding() const noexcept { return plan_.alignment(); }

  // Memory for so many records, with names of about so many bytes.
  void reserve(std::size_t count, std::size_t name_bytes);
  // Returns where the record's first byte will be. The content is borrowed.
  Result<std::uint64_t> add(std::string_view name, const RecordContent& content);
  // The same for a storage, which gets the alignment of make(): where padding cannot reach it, by a
  // filler in front.
  Result<std::uint64_t> add_storage(std::string_view name, const RecordContent& content);
  // The bytes of the archive, with the records that ArchiveWriter writes at the end; to be called
  // once, after all add().
  Result<std::uint64_t> close(std::uint64_t version = ArchiveWriter::default_version);
  // Writes the records that were added, in this order.
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
