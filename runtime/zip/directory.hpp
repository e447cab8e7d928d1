// The central directory of a zip archive, read once, whole, and proven.
//
// Afterwards true of every record: its name is unique, also if the case of ASCII letters is left
// out (torch's reader looks names up without it); it lies inside the file, before the directory and
// overlaps no other record (header + 30 + name + stored bytes, in file order); its method is stored
// or deflated; it is not encrypted; a stored record has equal sizes. Ambiguity (two end records
// that disagree, two records of one name, disagreeing counts) is refused, not resolved.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/bytes/buffer.hpp"
#include "runtime/bytes/read_cache.hpp"
#include "runtime/zip/name_index.hpp"
#include "runtime/zip/record.hpp"
#include "runtime/zip/storage_numbers.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

class Directory {
 public:
  // Finds the end record and reads the directory through `cache`, which must outlive the result
  // (names point into it). Fails with not_a_checkpoint if there is no end record at all, with
  // corrupt or unsupported as the class comment says.
  static Result<Directory> read(bytes::ReadCache& cache, std::uint64_t max_directory_bytes);

  // In directory order. Torch writes directory and records in the same order.
  std::span<const Record> records() const noexcept { return records_; }
  // Top folder of the first record with its slash: "archive/". Empty if it has none.
  std::string_view top_folder() const noexcept { return top_folder_; }
  // Name without the top folder; the whole name for a record outside it.
  std::string_view short_name(const Record& record) const noexcept;
  // By name without the top folder, exact case. nullptr if there is none.
  const Record* find(std::string_view short_name) const noexcept;
  // A record whose name differs from this one in the case of ASCII letters only; nullptr if there
  // is none. A reader that ignores case finds it where find() finds nothing.
  const Record* find_in_other_case(std::string_view short_name) const;
  // The record of this name in another top folder than that of the archive; nullptr: there is none.
  const Record* find_in_other_folder(std::string_view short_name) const noexcept;
  // The storages "data/0", "data/1", ... by their number, without a look at names. All of them, but
  // for numbers that are not below the count of records; none if there are few.
  const StorageNumbers& storages() const noexcept { return storages_; }
  // By the whole name.
  const Record* find_full(std::string_view full_name) const noexcept;
  // Absolute offset of the first central directory entry: where records end.
  std::uint64_t offset() const noexcept { return offset_; }
  // Bytes before the archive, 0 for genuine files. torch's layout arithmetic counts from here.
  std::uint64_t archive_start() const noexcept { return archive_start_; }
  // Whether each record lies behind the one before it in the directory.
  bool is_in_file_order() const noexcept { return sorted_headers_.empty(); }
  // Where the first record in the file begins: 0 for genuine files.
  std::uint64_t first_header() const noexcept;
  // End of the space a record may occupy: the next header in file order, or offset().
  std::uint64_t limit_of(const Record& record) const noexcept {
    if (!sorted_headers_.empty()) return next_sorted_header(record);
    const Record* const next = &record + 1;
    return next == records_.data() + records_.size() ? offset_ : next->header_offset;
  }

 private:
  friend class DirectoryParser;
  std::uint64_t next_sorted_header(const Record& record) const noexcept;

  bytes::Buffer memory_;  // of records_, and of the table of storages_
  std::span<const Record> records_;
  StorageNumbers storages_;
  NameIndex names_;  // of all other records
  // Records with a capital in their name behind the top folder, and those outside it: few, if any.
  std::vector<std::uint32_t> odd_names_;
  std::vector<std::uint64_t> sorted_headers_;  // empty if the records are in file order
  std::string_view top_folder_;
  std::uint64_t offset_ = 0;
  std::uint64_t archive_start_ = 0;
};

}  // namespace weightmap::zip
