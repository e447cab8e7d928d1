#include "runtime/base/zip/text_records.hpp"

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/layout.hpp"
#include "runtime/base/zip/record_bytes.hpp"

namespace weightmap::zip {
namespace {

// Longer than anything a writer puts into one of the small records.
constexpr std::uint64_t max_text_bytes = 64;

std::optional<std::uint64_t> parse_number(std::string_view text) noexcept {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return bytes::number(text);
}

}  // namespace

Result<void> check_no_other_case(const Directory& directory, std::string_view name) {
  const Record* other = directory.find_in_other_case(name);
  if (other == nullptr) return {};
  return failure(ErrorCode::corrupt,
                 "record " + bytes::quote(other->full_name()) + " is named like " +
                     std::string(name) + " but for case; readers differ in whether it counts",
                 other->header_offset);
}

Result<std::optional<TextRecord>> read_text(const Directory& directory, bytes::ReadCache& cache,
                                            std::string_view name) {
  const Record* record = directory.find(name);
  if (record == nullptr) {
    TRY(check_no_other_case(directory, name));
    return std::optional<TextRecord>{};
  }
  if (record->size > max_text_bytes)
    return failure(ErrorCode::corrupt,
                   "record " + std::string(name) + " has " + bytes::counted(record->size, "byte") +
                       ", expected at most " + std::to_string(max_text_bytes),
                   record->header_offset);
  TRY_ASSIGN(const RecordBytes content, read_record(directory, *record, cache, max_text_bytes));
  const auto* text = reinterpret_cast<const char*>(content.bytes.data());
  return TextRecord{std::string(text, content.bytes.size()), record->header_offset};
}

tl::unexpected<Error> unexpected_text(std::string_view name, const TextRecord& record,
                                      std::string_view expected) {
  return failure(ErrorCode::corrupt,
                 "record " + std::string(name) + " holds " + bytes::quote(record.text, 40) +
                     ", expected " + std::string(expected),
                 record.offset);
}

Result<std::uint64_t> read_version(const Directory& directory, bytes::ReadCache& cache) {
  for (std::string_view name : {".data/version", "version"}) {
    TRY_ASSIGN(const std::optional<TextRecord> record, read_text(directory, cache, name));
    if (!record) continue;
    const std::optional<std::uint64_t> version = parse_number(record->text);
    if (!version) return unexpected_text(name, *record, "a number");
    if (*version >= min_version && *version <= max_version) return *version;
    const bool low = *version < min_version;
    return failure(ErrorCode::unsupported,
                   "the archive has version " + std::to_string(*version) + ", the " +
                       (low ? "lowest" : "highest") + " supported version is " +
                       std::to_string(low ? min_version : max_version),
                   record->offset);
  }
  return failure(ErrorCode::corrupt, "the archive has no version record");
}

Result<std::uint64_t> read_storage_alignment(const Directory& directory, bytes::ReadCache& cache) {
  constexpr std::string_view name = ".storage_alignment";
  TRY_ASSIGN(const std::optional<TextRecord> record, read_text(directory, cache, name));
  if (!record) return Layout::default_alignment;
  const std::optional<std::uint64_t> alignment = parse_number(record->text);
  // The padding is counted in 16 bits, so no writer can go beyond this.
  constexpr std::uint64_t max_alignment = 65536;
  if (!alignment || *alignment == 0 || *alignment > max_alignment)
    return unexpected_text(name, *record, "a number from 1 to 65536");
  return *alignment;
}

}  // namespace weightmap::zip
