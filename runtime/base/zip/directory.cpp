#include "runtime/base/zip/directory.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <string>
#include <type_traits>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/central_entry.hpp"
#include "runtime/base/zip/end_record.hpp"
#include "runtime/base/zip/signatures.hpp"

namespace weightmap::zip {

static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) == 40);

namespace {

// True if at least the record's local header, name and payload lie before `limit`.
bool ends_before(const Record& record, std::uint64_t limit) noexcept {
  std::uint64_t length = local_header_bytes + record.name_length;
  return bytes::checked_add(length, record.stored_size, &length) &&
         bytes::contains(limit, record.header_offset, length);
}

// Sets bit 6 of each byte of the result whose input may be a capital: capitals have bit 6 but not
// bit 5, and so do a few signs that names rarely have.
std::uint64_t may_be_capitals(const char* bytes) noexcept {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word & ~(word << 1);
}

// True if a name has a capital after its first `skip` bytes.
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
  DirectoryParser(Directory& directory, const EndOfArchive& end, bytes::ReadCache& cache,
                  Refusals refusals)
      : out_(directory), end_(end), cache_(cache), refusals_(refusals) {}

  Result<void> run() {
    const std::uint64_t length = cache_.source_size() - end_.directory_offset;
    TRY_ASSIGN(const auto window, cache_.extend_back(end_.directory_offset, length));
    TRY(parse(window.first(end_.directory_size)));
    if (!is_in_order_) TRY(check_overlap_sorted());
    return refusals_ == Refusals::all ? index_names() : Result<void>();
  }

 private:
  void begin();
  void begin_numbers();
  Result<void> parse(std::span<const std::byte> directory);
  std::size_t parse_storages(std::span<const std::byte> directory, std::uint32_t& count);
  void note(std::uint32_t index);
  // Returns the number of the storage with this name; bytes::no_number for other names.
  std::uint32_t number_of(std::string_view name) const noexcept {
    if (!name.starts_with(storage_prefix_)) return bytes::no_number;
    return bytes::decimal(name.substr(storage_prefix_.size()));
  }
  Result<void> check_overlap_sorted();
  Result<void> index_names();
  Result<void> check_case();
  tl::unexpected<Error> twins(const Record& a, const Record& b) const;
  tl::unexpected<Error> overlaps(const Record& record, std::uint64_t limit) const;

  Directory& out_;
  const EndOfArchive& end_;
  bytes::ReadCache& cache_;
  const Refusals refusals_;
  Record* records_ = nullptr;          // of out_, during the parse
  std::string storage_prefix_;         // common prefix of the names of all storages
  std::vector<std::uint32_t> others_;  // records that are not numbered storages
  bool is_in_order_ = true;            // the records do not overlap and are in file order
  bool has_number_twice_ = false;
};

void DirectoryParser::begin() {
  out_.offset_ = end_.directory_offset;
  out_.archive_start_ = end_.archive_start;
  out_.memory_ =
      bytes::Buffer(end_.record_count * (sizeof(Record) + sizeof(std::uint32_t)), cache_.memory());
  records_ = reinterpret_cast<Record*>(out_.memory_.data());
}

// The first record determines the top folder.
void DirectoryParser::begin_numbers() {
  const std::string_view first = records_->full_name();
  out_.top_folder_ = first.substr(0, first.find('/') + 1);
  auto* const table = reinterpret_cast<std::uint32_t*>(records_ + end_.record_count);
  out_.storages_ = StorageNumbers({table, end_.record_count});
  storage_prefix_ = std::string(out_.top_folder_).append(StorageNumbers::folder);
}

Result<void> DirectoryParser::parse(std::span<const std::byte> directory) {
  begin();
  std::uint32_t count = 0;
  for (std::size_t at = 0; at < directory.size();) {
    const EntryPlace place{end_.directory_offset + at, end_.archive_start,
                           refusals_ == Refusals::structure};
    if (count == end_.record_count)
      return failure(ErrorCode::corrupt,
                     "the directory goes on behind the " + bytes::counted(count, "record") +
                         " that the end record counts",
                     place.offset);
    TRY_ASSIGN(const std::size_t length,
               parse_entry(directory.subspan(at), place, *new (records_ + count) Record));
    if (count == 0) begin_numbers();
    note(count++);
    at += length;
    at += parse_storages(directory.subspan(at), count);
  }
  if (count != end_.record_count)
    return failure(ErrorCode::corrupt,
                   "the directory holds " + bytes::counted(count, "record") +
                       ", but the end record counts " + std::to_string(end_.record_count),
                   end_.directory_offset);
  out_.records_ = {records_, count};
  is_in_order_ = is_in_order_ && ends_before(records_[count - 1], out_.offset_);
  return {};
}

// Adds a record that parse_entry() has parsed.
void DirectoryParser::note(std::uint32_t index) {
  const Record& record = records_[index];
  is_in_order_ =
      is_in_order_ && (index == 0 || ends_before(records_[index - 1], record.header_offset));
  const std::uint32_t number = number_of(record.full_name());
  if (!out_.storages_.may_have(number))
    others_.push_back(index);
  else if (!out_.storages_.add(number, index))
    has_number_twice_ = true;
}

// Fast path: parses the plain storage entries at the front of `directory` and returns their length.
// The result equals that of parse_entry() and note() for each of them.
std::size_t DirectoryParser::parse_storages(std::span<const std::byte> directory,
                                            std::uint32_t& count) {
  // Local copies, whose members the compiler can keep in registers.
  StorageNumbers numbers = out_.storages_;
  bool is_in_order = is_in_order_;
  Record* record = records_ + count;
  Record* const end = records_ + end_.record_count;
  std::size_t at = 0;
  for (; record != end; ++record, ++count) {
    const std::size_t length =
        parse_plain_entry(directory.subspan(at), end_.archive_start, *new (record) Record);
    if (length == 0) break;
    const std::uint32_t number = number_of(record->full_name());
    if (!numbers.may_have(number)) break;
    is_in_order = is_in_order && ends_before(record[-1], record->header_offset);
    if (!numbers.add(number, count)) has_number_twice_ = true;
    at += length;
  }
  out_.storages_ = numbers;
  is_in_order_ = is_in_order;
  return at;
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

// Handles records that are in another order than their entries, or overlap.
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
    if (!ends_before(record, limit)) return overlaps(record, limit);
    out_.sorted_headers_.push_back(record.header_offset);
  }
  return {};
}

// If an archive has few storages, or a number twice, all its names are indexed instead.
Result<void> DirectoryParser::index_names() {
  const auto records = out_.records_;
  if (has_number_twice_ || out_.storages_.count() < records.size() / 2) {
    out_.storages_ = {};
    others_.resize(records.size());
    std::iota(others_.begin(), others_.end(), 0u);
    out_.names_ = NameIndex(records);
  } else {
    out_.names_ = NameIndex(records, others_);
  }
  if (const auto& same = out_.names_.duplicate())
    return twins(records[same->first], records[same->second]);
  return check_case();
}

// Some readers ignore the case of names. A name in lower case is its own folded form, so only other
// names can equal one of them, or each other. Arrays are read by numpy, which does not ignore it.
Result<void> DirectoryParser::check_case() {
  const auto records = out_.records_;
  for (const std::uint32_t i : others_) {
    const std::string_view name = records[i].full_name();
    if (name.ends_with(".npy")) continue;
    if (!name.starts_with(out_.top_folder_) || has_capital(name, out_.top_folder_.size()))
      out_.odd_names_.push_back(i);
  }
  std::vector<std::pair<std::string, std::uint32_t>> folded;
  const std::string top_folder = in_lower_case(out_.top_folder_);
  for (const std::uint32_t i : out_.odd_names_) {
    folded.emplace_back(in_lower_case(records[i].full_name()), i);
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

Result<Directory> Directory::read(bytes::ReadCache& cache, std::uint64_t max_directory_bytes,
                                  Refusals refusals) {
  TRY_ASSIGN(const EndOfArchive end, find_end_of_archive(cache));
  if (end.directory_size > max_directory_bytes)
    return failure(ErrorCode::limit_exceeded,
                   "the archive's directory has " + std::to_string(end.directory_size) +
                       " bytes, the limit is " + std::to_string(max_directory_bytes),
                   end.directory_offset);
  Directory directory;
  TRY(DirectoryParser(directory, end, cache, refusals).run());
  TRY(check_prefix(cache, directory.first_header()));
  return directory;
}

std::uint64_t Directory::first_header() const noexcept {
  return sorted_headers_.empty() ? records_.front().header_offset : sorted_headers_.front();
}

std::string_view Directory::short_name(const Record& record) const noexcept {
  std::string_view name = record.full_name();
  if (name.starts_with(top_folder_)) name.remove_prefix(top_folder_.size());
  return name;
}

const Record* Directory::find(std::string_view name) const noexcept {
  if (name.starts_with(StorageNumbers::folder))
    if (const auto index =
            storages_.find(bytes::decimal(name.substr(StorageNumbers::folder.size())));
        index != StorageNumbers::none)
      return &records_[index];
  return names_.find(records_, top_folder_, name);
}

const Record* Directory::find_in_other_case(std::string_view name) const {
  const std::string wanted = in_lower_case(std::string(top_folder_) + std::string(name));
  for (const std::uint32_t i : odd_names_)
    if (in_lower_case(records_[i].full_name()) == wanted && short_name(records_[i]) != name)
      return &records_[i];
  return nullptr;
}

const Record* Directory::find_in_other_folder(std::string_view name) const noexcept {
  for (const std::uint32_t i : odd_names_) {
    const std::string_view full = records_[i].full_name();
    if (full.starts_with(top_folder_)) continue;
    if (full.substr(full.find('/') + 1) == name) return &records_[i];
  }
  return nullptr;
}

const Record* Directory::find_full(std::string_view full_name) const noexcept {
  if (full_name.starts_with(top_folder_)) return find(full_name.substr(top_folder_.size()));
  return names_.find(records_, full_name, {});
}

std::uint64_t Directory::next_sorted_header(const Record& record) const noexcept {
  const auto next =
      std::upper_bound(sorted_headers_.begin(), sorted_headers_.end(), record.header_offset);
  return next == sorted_headers_.end() ? offset_ : *next;
}

}  // namespace weightmap::zip
