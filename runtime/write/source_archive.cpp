#include "runtime/write/source_archive.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "runtime/archive/last_records.hpp"
#include "runtime/archive/serialization_id.hpp"
#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/torch/reserved_marks.hpp"
#include "runtime/write/record_list.hpp"
#include "runtime/zip/storage_offsets.hpp"

namespace weightmap {
namespace {

// That of a huge page: what lies at a multiple of more does so by chance.
constexpr std::uint64_t largest_alignment = std::uint64_t{2} << 20;

std::vector<ArchiveReader::RecordInfo> in_file_order(const ArchiveReader& archive) {
  std::vector<ArchiveReader::RecordInfo> records = archive.records();
  std::ranges::sort(records, {}, &ArchiveReader::RecordInfo::header_offset);
  return records;
}

bool is_filler(std::string_view name) { return name.starts_with(RecordList::filler_name); }

std::unordered_set<std::string> storage_records(const Checkpoint& checkpoint) {
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < checkpoint.storage_count(); ++i)
    names.insert(zip::storage_record(checkpoint.storage(i).key));
  return names;
}

bool is_version(std::string_view name) { return name == "version" || name == ".data/version"; }

}  // namespace

Result<SourceArchive> SourceArchive::open(const std::filesystem::path& path, Checkpoint checkpoint,
                                          const OpenOptions& options) {
  TRY_ASSIGN(ArchiveReader archive, ArchiveReader::open(path, options));
  TRY_ASSIGN(const std::uint64_t version, archive.version());
  if (!checkpoint.is_current())
    return about_file({ErrorCode::io, "the file was replaced or written to while it was opened"},
                      path);
  if (checkpoint.info().reserved && !checkpoint.info().reserved->is_sealed)
    return about_file({ErrorCode::unsupported,
                       "the file has reserved storages and is not sealed, so it may change yet"},
                      path);
  return SourceArchive(std::move(archive), std::move(checkpoint), version);
}

// Of what fillers moved to its place nothing else says how it is aligned.
std::uint64_t SourceArchive::alignment() const {
  std::uint64_t found = 0;
  bool is_moved = false;
  for (const ArchiveReader::RecordInfo& record : in_file_order(archive_)) {
    const std::uint64_t offset = is_moved ? archive_.payload_offset(record.name).value_or(0) : 0;
    found |= offset & -offset;
    is_moved = is_filler(record.name);
  }
  if (found == 0) return checkpoint_.info().storage_alignment;
  return std::min(found & -found, largest_alignment);
}

NewLayout SourceArchive::layout() const {
  const std::vector<ArchiveReader::RecordInfo> all = archive_.records();
  const bool crc32 = std::ranges::any_of(all, [](const auto& record) { return record.crc32 != 0; });
  return {alignment(), crc32};
}

Result<std::vector<NewRecord>> SourceArchive::records() const {
  std::vector<NewRecord> made;
  const std::unordered_set<std::string> storages = storage_records(checkpoint_);
  bool is_end = false;
  bool has_byte_order = checkpoint_.info().byteorder == native_byte_order;
  for (const ArchiveReader::RecordInfo& record : in_file_order(archive_)) {
    is_end = is_end || is_version(record.name);
    if (is_version(record.name) || record.name == SerializationId::record ||
        record.name == torch::marks_record || is_filler(record.name))
      continue;
    if (record.name == "byteorder") {
      // Behind the version it is where ArchiveWriter writes this machine's.
      if (is_end && has_byte_order) continue;
      has_byte_order = true;
    }
    TRY_ASSIGN(RecordContent content, archive_.content(record.name));
    std::string name(record.name);
    const bool is_storage = storages.contains(name);
    made.push_back({std::move(name), std::move(content), is_storage});
  }
  if (!has_byte_order)
    made.push_back({"byteorder", RecordContent::text(checkpoint_.info().byteorder), false});
  return made;
}

Result<std::uint64_t> SourceArchive::write(const std::vector<NewRecord>& records,
                                           const NewLayout& layout, const std::filesystem::path& to,
                                           const NewFileOptions& file,
                                           const Progress& progress) const {
  TRY_ASSIGN(RecordList list, RecordList::make(archive_.archive_name(), layout.alignment));
  for (const NewRecord& record : records)
    TRY(record.is_storage ? list.add_storage(record.name, record.content)
                          : list.add(record.name, record.content));
  const std::uint64_t version = std::max(version_, ArchiveWriter::default_version);
  TRY_ASSIGN(const std::uint64_t bytes, list.close(version));
  TRY_ASSIGN(ArchiveWriter archive,
             ArchiveWriter::create(to, {.alignment = list.padding(),
                                        .crc32 = layout.crc32,
                                        .archive_name = std::string(archive_.archive_name()),
                                        .file = file,
                                        .progress = progress}));
  TRY(archive.require_version(version));
  TRY(archive.reserve_space(bytes));
  TRY(list.write(archive));
  if (checkpoint_.state() == CheckpointState::modified)
    return failure(ErrorCode::io, "the file was written to while it was copied");
  return archive.finish();
}

}  // namespace weightmap
