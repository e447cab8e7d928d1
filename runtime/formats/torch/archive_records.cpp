#include "runtime/formats/torch/archive_records.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/record_bytes.hpp"
#include "runtime/base/zip/text_records.hpp"
#include "runtime/formats/format/compressed_storages.hpp"
#include "runtime/formats/format/identify.hpp"
#include "runtime/formats/torch/script.hpp"

namespace weightmap::torch {
namespace {

// torch takes the folder of the first record, and others any folder that has the record.
Result<void> check_no_other_folder(const zip::Directory& directory, std::string_view name) {
  const zip::Record* other = directory.find_in_other_folder(name);
  if (other == nullptr) return {};
  return failure(ErrorCode::corrupt,
                 "record " + bytes::quote(other->full_name()) + " is a second " +
                     std::string(name) + " in another folder; readers differ in which one counts",
                 other->header_offset);
}

Result<void> read_byte_order(const zip::Directory& directory, bytes::ReadCache& cache,
                             ByteOrder missing, ArchiveRecords& records) {
  constexpr std::string_view name = "byteorder";
  TRY_ASSIGN(const std::optional<zip::TextRecord> record, zip::read_text(directory, cache, name));
  records.byte_order_assumed = !record;
  if (records.byte_order_assumed) {
    constexpr bool native_is_big = std::endian::native == std::endian::big;
    records.big_endian =
        missing == ByteOrder::big || (missing == ByteOrder::native && native_is_big);
    return {};
  }
  records.big_endian = record->text == "big";
  if (records.big_endian || record->text == "little") return {};
  return zip::unexpected_text(name, *record, "little or big");
}

// Reads the storages' status bytes.
Result<void> read_marks(const zip::Directory& directory, bytes::ReadCache& cache,
                        ArchiveRecords& records) {
  const zip::Record* const record = directory.find(marks_record);
  if (record == nullptr) return {};
  TRY(check_marks(directory, *record));
  // The record's checksum is meaningless until the last status byte says that the file is sealed.
  TRY_ASSIGN(const zip::RecordBytes content,
             zip::read_unsummed(directory, *record, cache, record->size));
  ReservedStorages& reserved = records.reserved.emplace();
  for (std::size_t i = 0; i + 1 < content.bytes.size(); ++i) {
    const auto letter = static_cast<char>(content.bytes[i]);
    if (letter == mark::saved) continue;
    ++reserved.storages;
    if (letter != mark::written) reserved.unwritten.push_back(i);
  }
  reserved.is_sealed = static_cast<char>(content.bytes.back()) == mark::sealed;
  return {};
}

// The first storage's header is followed by its name and at most this much padding.
constexpr std::uint64_t max_header_bytes = 30 + 65535 + 65535;

}  // namespace

Result<void> check_marks(const zip::Directory& directory, const zip::Record& record) {
  const std::uint64_t most = directory.records().size();  // each storage is one
  if (record.size > 0 && record.size <= most) return {};
  return failure(ErrorCode::corrupt,
                 "record " + std::string(marks_record) + " has " +
                     bytes::counted(record.size, "byte") + ", expected 1 to " +
                     std::to_string(most),
                 record.header_offset);
}

Result<ArchiveKind> kind_of(const zip::Directory& directory) {
  if (directory.find(pickle_record) != nullptr) {
    TRY(check_no_other_folder(directory, pickle_record));
    if (directory.find(constants_pickle) != nullptr) return ArchiveKind::script;
    TRY(zip::check_no_other_case(directory, constants_pickle));
    return ArchiveKind::saved;
  }
  TRY(zip::check_no_other_case(directory, pickle_record));
  if (directory.find("archive_format") != nullptr) return ArchiveKind::exported;
  if (std::string known = format::name_archive(directory); !known.empty())
    return failure(ErrorCode::not_a_checkpoint, std::move(known));
  const std::size_t count = directory.records().size();
  std::string found = bytes::counted(count, "record");
  if (!directory.records().empty()) {
    const zip::Record& first = directory.records().front();
    found += ", the first is " + bytes::quote({first.name, first.name_length}, 80);
  }
  return failure(
      ErrorCode::not_a_checkpoint,
      "is a zip archive without the record data.pkl, so not a torch checkpoint (" + found + ")");
}

std::optional<Head> head_of(const zip::Directory& directory) {
  const zip::Record* pickle = directory.find(pickle_record);
  const zip::Record* first_storage = nullptr;
  for (const zip::Record& record : directory.records()) {
    if (!directory.short_name(record).starts_with(storage_folder)) continue;
    first_storage = &record;
    break;
  }
  if (pickle == nullptr || first_storage == nullptr ||
      pickle->header_offset > first_storage->header_offset)
    return std::nullopt;
  // Only small records lie between the two.
  constexpr std::uint64_t slack = 16384;
  const std::uint64_t distance = first_storage->header_offset - pickle->header_offset;
  if (distance > pickle->stored_size + slack + max_header_bytes) return std::nullopt;
  const std::uint64_t header =
      std::min<std::uint64_t>(first_storage->name_length + std::uint64_t{512},
                              directory.offset() - first_storage->header_offset);
  return Head{pickle->header_offset, distance + header};
}

tl::unexpected<Error> in_pickle(Error error) {
  error.message = std::string(pickle_record) + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

Result<ArchiveRecords> read_archive_records(const zip::Directory& directory,
                                            bytes::ReadCache& cache, ByteOrder missing_byte_order) {
  ArchiveRecords records{};
  TRY_ASSIGN(records.version, zip::read_version(directory, cache));
  TRY_ASSIGN(std::optional<zip::TextRecord> format,
             zip::read_text(directory, cache, ".format_version"));
  if (format) records.format_version = std::move(format->text);
  TRY_ASSIGN(records.storage_alignment, zip::read_storage_alignment(directory, cache));
  TRY(read_byte_order(directory, cache, missing_byte_order, records));
  TRY(read_marks(directory, cache, records));
  return records;
}

Result<PlacedStorages> place_storages(const zip::Directory& directory,
                                      std::span<const zip::StorageRequest> requests,
                                      const ArchiveRecords& records, format::Input& input,
                                      const OpenOptions& options, OpenStats& stats,
                                      std::pmr::memory_resource& memory) {
  zip::LocateOptions locate;
  locate.alignment = records.storage_alignment;
  locate.verify_headers = *options.verify >= Verify::headers;
  TRY_ASSIGN(
      std::pmr::vector<zip::StorageExtent> extents,
      zip::locate_storages(directory, requests, locate, *input.cache, *input.file, stats, memory));
  TRY_ASSIGN(std::vector<format::CompressedStorage> compressed,
             format::place_compressed(directory, extents, options.limits, input.copies_base));
  return PlacedStorages{std::move(extents), std::move(compressed)};
}

}  // namespace weightmap::torch
