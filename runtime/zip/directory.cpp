#include "runtime/zip/directory.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <string>
#include <type_traits>

#include "runtime/base/try.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/bytes/counted.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/zip/central_entry.hpp"
#include "runtime/zip/end_record.hpp"
#include "runtime/zip/signatures.hpp"

namespace weightmap::zip {

static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) == 40);

namespace {

// The least that a record occupies: its local header, name and payload, without extra fields.
// nullopt if it does not lie before `limit`.
std::optional<std::uint64_t> least_end(const Record& record, std::uint64_t limit) noexcept {
  const std::uint64_t head = local_header_bytes + record.name_length;
  if (!bytes::contains(limit, record.header_offset, head)) return std::nullopt;
  const std::uint64_t payload = record.header_offset + head;
  if (!bytes::contains(limit, payload, record.stored_size)) return std::nullopt;
  return payload + record.stored_size;
}

std::string lower(std::string_view name) {
  std::string text(name);
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// Bit 6 of each of eight bytes is set in the result if the byte may be a capital, which has bit 6
// but not bit 5; so do a few signs that names rarely have.
std::uint64_t may_be_capitals(const char* bytes) noexcept {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word & ~(word << 1);
}

// Whether a name has a capital behind its first `skip` bytes.
bool has_capital(std::string_view name, std::size_t skip) noexcept {
  if (name.size() >= 8) {
    const char* const last = name.data() + name.size() - 8;
    std::uint64_t found = may_be_capitals(last);
    for (const char* at = name.data() + skip; at < last; at += 8) found |= may_be_capitals(at);
    if ((found & 0x4040404040404040) == 0) return false;
  }
  return std::any_of(name.begin() + static_cast<std::ptrdiff_t>(skip), name.end(),
                     [](char c) { return c >= 'A' && c <= 'Z'; });
}

}  // namespace

// Fills a Directory, one step after another.
class DirectoryParser {
 public:
  DirectoryParser(Directory& directory, const EndOfArchive& end, bytes::Windows& windows)
      : out_(directory), end_(end), windows_(windows) {}

  Result<void> run() {
    const std::uint64_t length = windows_.source_size() - end_.directory_offset;
    const auto window = windows_.extend_back(end_.directory_offset, length);
    if (!window) return tl::unexpected<Error>(window.error());
    TRY(parse(window->first(end_.directory_size)));
    TRY(check_overlap());
    return index_names();
  }

 private:
  Result<void> parse(std::span<const std::byte> directory);
  Result<void> check_overlap();
  Result<void> check_overlap_sorted();
  Result<void> index_names();
  Result<void> check_case();
  tl::unexpected<Error> twins(const Record& a, const Record& b) const;
  tl::unexpected<Error> overlaps(const Record& record, std::uint64_t limit) const;

  Directory& out_;
  const EndOfArchive& end_;
  bytes::Windows& windows_;
};

Result<void> DirectoryParser::parse(std::span<const std::byte> directory) {
  out_.offset_ = end_.directory_offset;
  out_.archive_start_ = end_.archive_start;
  out_.memory_ = bytes::Buffer(end_.record_count * sizeof(Record), windows_.memory());
  auto* const records = reinterpret_cast<Record*>(out_.memory_.data());
  std::uint64_t count = 0;
  for (std::size_t at = 0; at < directory.size(); ++count) {
    const EntryPlace place{end_.directory_offset + at, end_.archive_start};
    if (count == end_.record_count)
      return failure(ErrorCode::corrupt,
                     "the directory goes on behind the " + bytes::counted(count, "record") +
                         " that the end record counts",
                     place.offset);
    const Result<std::size_t> length =
        parse_entry(directory.subspan(at), place, *new (records + count) Record);
    if (!length) return tl::unexpected<Error>(length.error());
    at += *length;
  }
  if (count != end_.record_count)
    return failure(ErrorCode::corrupt,
                   "the directory holds " + bytes::counted(count, "record") +
                       ", but the end record counts " + std::to_string(end_.record_count),
                   end_.directory_offset);
  out_.records_ = {records, count};
  return {};
}

tl::unexpected<Error> DirectoryParser::overlaps(const Record& record, std::uint64_t limit) const {
  const std::string what =
      limit == out_.offset_ ? "the directory or the end of the file" : "the next record";
  return failure(ErrorCode::corrupt,
                 "record " + bytes::quote(record.full_name()) + " with " +
                     bytes::counted(record.stored_size, "byte") + " runs into " + what +
                     " at byte " + std::to_string(limit),
                 record.header_offset);
}

Result<void> DirectoryParser::check_overlap() {
  const auto records = out_.records_;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::uint64_t limit =
        i + 1 < records.size() ? records[i + 1].header_offset : out_.offset_;
    if (!least_end(records[i], limit)) return check_overlap_sorted();
  }
  return {};
}

// The records are in another order than their entries, or do overlap.
Result<void> DirectoryParser::check_overlap_sorted() {
  const auto records = out_.records_;
  std::vector<std::uint32_t> order(records.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return records[a].header_offset < records[b].header_offset;
  });
  out_.sorted_headers_.reserve(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Record& record = records[order[i]];
    const std::uint64_t limit =
        i + 1 < order.size() ? records[order[i + 1]].header_offset : out_.offset_;
    if (!least_end(record, limit)) return overlaps(record, limit);
    out_.sorted_headers_.push_back(record.header_offset);
  }
  return {};
}

Result<void> DirectoryParser::index_names() {
  const auto records = out_.records_;
  const std::string_view first = records.front().full_name();
  out_.top_folder_ = first.substr(0, first.find('/') + 1);
  out_.names_ = NameIndex(records);
  if (const auto& same = out_.names_.duplicate())
    return twins(records[same->first], records[same->second]);
  return check_case();
}

// Readers of the world look names up with case or without. Names in lower case are their own fold,
// so only the others can be equal to one of them, or to one another.
Result<void> DirectoryParser::check_case() {
  const auto records = out_.records_;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::string_view name = records[i].full_name();
    if (!name.starts_with(out_.top_folder_) || has_capital(name, out_.top_folder_.size()))
      out_.odd_names_.push_back(static_cast<std::uint32_t>(i));
  }
  std::vector<std::pair<std::string, std::uint32_t>> folded;
  const std::string top_folder = lower(out_.top_folder_);
  for (const std::uint32_t i : out_.odd_names_) {
    folded.emplace_back(lower(records[i].full_name()), i);
    const std::string_view name = folded.back().first;
    if (!name.starts_with(top_folder)) continue;
    const Record* plain = out_.find(name.substr(top_folder.size()));
    if (plain != nullptr && plain != &records[i]) return twins(*plain, records[i]);
  }
  std::sort(folded.begin(), folded.end());
  const auto same =
      std::adjacent_find(folded.begin(), folded.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  if (same == folded.end()) return {};
  return twins(records[same->second], records[(same + 1)->second]);
}

tl::unexpected<Error> DirectoryParser::twins(const Record& a, const Record& b) const {
  const std::string names = a.full_name() == b.full_name()
                                ? "two records are named " + bytes::quote(a.full_name())
                                : "records " + bytes::quote(a.full_name()) + " and " +
                                      bytes::quote(b.full_name()) + " are named alike but for case";
  return failure(ErrorCode::corrupt,
                 names + ", at bytes " + std::to_string(a.header_offset) + " and " +
                     std::to_string(b.header_offset),
                 b.header_offset);
}

Result<Directory> Directory::read(bytes::Windows& windows, std::uint64_t max_directory_bytes) {
  const Result<EndOfArchive> end = find_end_of_archive(windows);
  if (!end) return tl::unexpected<Error>(end.error());
  if (end->directory_size > max_directory_bytes)
    return failure(ErrorCode::limit_exceeded,
                   "the archive's directory has " + std::to_string(end->directory_size) +
                       " bytes, the limit is " + std::to_string(max_directory_bytes),
                   end->directory_offset);
  Directory directory;
  if (Result<void> ok = DirectoryParser(directory, *end, windows).run(); !ok)
    return tl::unexpected<Error>(ok.error());
  return directory;
}

std::string_view Directory::short_name(const Record& record) const noexcept {
  std::string_view name = record.full_name();
  if (name.starts_with(top_folder_)) name.remove_prefix(top_folder_.size());
  return name;
}

const Record* Directory::find(std::string_view name) const noexcept {
  return names_.find(records_, top_folder_, name);
}

const Record* Directory::find_in_other_case(std::string_view name) const {
  const std::string wanted = lower(std::string(top_folder_) + std::string(name));
  for (const std::uint32_t i : odd_names_)
    if (lower(records_[i].full_name()) == wanted && short_name(records_[i]) != name)
      return &records_[i];
  return nullptr;
}

const Record* Directory::find_full(std::string_view full_name) const noexcept {
  return names_.find(records_, full_name, {});
}

std::uint64_t Directory::next_sorted_header(const Record& record) const noexcept {
  const auto next =
      std::upper_bound(sorted_headers_.begin(), sorted_headers_.end(), record.header_offset);
  return next == sorted_headers_.end() ? offset_ : *next;
}

}  // namespace weightmap::zip
