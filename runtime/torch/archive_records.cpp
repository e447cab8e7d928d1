#include "runtime/torch/archive_records.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string_view>

#include "runtime/bytes/escape.hpp"
#include "runtime/zip/layout.hpp"
#include "runtime/zip/record_bytes.hpp"

namespace weightmap::torch {
namespace {

// Longer than anything a writer puts into one of the small records.
constexpr std::uint64_t max_text_bytes = 64;

struct TextRecord {
  std::string text;
  std::uint64_t offset;  // of the record's header
};

// nullopt if there is no such record.
Result<std::optional<TextRecord>> read_text(const zip::Directory& directory,
                                            bytes::Windows& windows, std::string_view name) {
  const zip::Record* record = directory.find(name);
  if (record == nullptr) return std::optional<TextRecord>{};
  if (record->size > max_text_bytes)
    return failure(ErrorCode::corrupt,
                   "record " + std::string(name) + " has " + std::to_string(record->size) +
                       " bytes, expected at most " + std::to_string(max_text_bytes),
                   record->header_offset);
  const Result<zip::RecordBytes> content =
      zip::read_record(directory, *record, windows, max_text_bytes);
  if (!content) return tl::unexpected<Error>(content.error());
  const auto* text = reinterpret_cast<const char*>(content->bytes.data());
  return TextRecord{std::string(text, content->bytes.size()), record->header_offset};
}

std::optional<std::uint64_t> parse_number(std::string_view text) noexcept {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

tl::unexpected<Error> unexpected_text(std::string_view name, const TextRecord& record,
                                      std::string_view expected) {
  return failure(ErrorCode::corrupt,
                 "record " + std::string(name) + " holds " + bytes::quote(record.text, 40) +
                     ", expected " + std::string(expected),
                 record.offset);
}

Result<std::uint64_t> read_alignment(const zip::Directory& directory, bytes::Windows& windows) {
  constexpr std::string_view name = ".storage_alignment";
  const Result<std::optional<TextRecord>> record = read_text(directory, windows, name);
  if (!record) return tl::unexpected<Error>(record.error());
  if (!*record) return zip::Layout::default_alignment;
  const std::optional<std::uint64_t> alignment = parse_number((*record)->text);
  // The padding is counted in 16 bits, so no writer can go beyond this.
  constexpr std::uint64_t max_alignment = 65536;
  if (!alignment || *alignment == 0 || *alignment > max_alignment)
    return unexpected_text(name, **record, "a number from 1 to 65536");
  return *alignment;
}

Result<void> read_byte_order(const zip::Directory& directory, bytes::Windows& windows,
                             ByteOrder missing, ArchiveRecords& records) {
  constexpr std::string_view name = "byteorder";
  const Result<std::optional<TextRecord>> record = read_text(directory, windows, name);
  if (!record) return tl::unexpected<Error>(record.error());
  records.byte_order_assumed = !record->has_value();
  if (records.byte_order_assumed) {
    constexpr bool native_is_big = std::endian::native == std::endian::big;
    records.big_endian =
        missing == ByteOrder::big || (missing == ByteOrder::native && native_is_big);
    return {};
  }
  records.big_endian = (*record)->text == "big";
  if (records.big_endian || (*record)->text == "little") return {};
  return unexpected_text(name, **record, "little or big");
}

// torch's own bounds on the version record.
constexpr std::uint64_t min_version = 1;
constexpr std::uint64_t max_version = 10;

// Behind the first storage's header there is its name and up to this much padding.
constexpr std::uint64_t max_header_bytes = 30 + 65535 + 65535;

}  // namespace

Result<void> check_is_checkpoint(const zip::Directory& directory) {
  if (directory.find("constants.pkl") != nullptr)
    return failure(
        ErrorCode::unsupported,
        "is a TorchScript archive (torch.jit.save), which is not supported yet; save the "
        "state_dict with torch.save");
  if (directory.find(pickle_record) != nullptr) return {};
  const std::size_t count = directory.records().size();
  std::string found = std::to_string(count) + (count == 1 ? " record" : " records");
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
  // Between the two there are only small records.
  constexpr std::uint64_t slack = 16384;
  const std::uint64_t distance = first_storage->header_offset - pickle->header_offset;
  if (distance > pickle->stored_size + slack + max_header_bytes) return std::nullopt;
  const std::uint64_t header =
      std::min<std::uint64_t>(first_storage->name_length + std::uint64_t{512},
                              directory.offset() - first_storage->header_offset);
  return Head{pickle->header_offset, distance + header};
}

Result<std::uint64_t> read_version(const zip::Directory& directory, bytes::Windows& windows) {
  for (std::string_view name : {".data/version", "version"}) {
    const Result<std::optional<TextRecord>> record = read_text(directory, windows, name);
    if (!record) return tl::unexpected<Error>(record.error());
    if (!*record) continue;
    const std::optional<std::uint64_t> version = parse_number((*record)->text);
    if (!version) return unexpected_text(name, **record, "a number");
    if (*version >= min_version && *version <= max_version) return *version;
    const bool low = *version < min_version;
    return failure(ErrorCode::unsupported,
                   "the archive has version " + std::to_string(*version) + ", the " +
                       (low ? "lowest" : "highest") + " supported version is " +
                       std::to_string(low ? min_version : max_version),
                   (*record)->offset);
  }
  return failure(ErrorCode::corrupt, "the archive has no version record");
}

Result<ArchiveRecords> read_archive_records(const zip::Directory& directory,
                                            bytes::Windows& windows, ByteOrder missing_byte_order) {
  ArchiveRecords records{};
  const Result<std::uint64_t> version = read_version(directory, windows);
  if (!version) return tl::unexpected<Error>(version.error());
  records.version = *version;
  Result<std::optional<TextRecord>> format = read_text(directory, windows, ".format_version");
  if (!format) return tl::unexpected<Error>(format.error());
  if (*format) records.format_version = std::move((*format)->text);
  const Result<std::uint64_t> alignment = read_alignment(directory, windows);
  if (!alignment) return tl::unexpected<Error>(alignment.error());
  records.storage_alignment = *alignment;
  if (Result<void> ok = read_byte_order(directory, windows, missing_byte_order, records); !ok)
    return tl::unexpected<Error>(ok.error());
  return records;
}

}  // namespace weightmap::torch
