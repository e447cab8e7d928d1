// The central directory of a zip archive, read once as a whole, and proven.
//
// For every record the following then holds: its name is unique, even without regard to the case of
// ASCII letters (torch's reader ignores case), unless all are .npy, which numpy reads; it lies
// inside the file, before the directory, and overlaps no other record (header + 30 + name + stored
// bytes, in file order); its method is stored or deflated; it is not encrypted; a stored record has
// equal sizes. Ambiguity (two end records that disagree, two records of one name, disagreeing
// counts) is refused, not resolved.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/bytes/buffer.hpp"
#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/zip/name_index.hpp"
#include "runtime/base/zip/record.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

// `structure`: records that are not read and those of one name are kept, and nothing is found by
// its name, so that one record does not make the others unreachable.
enum class Refusals : std::uint8_t { all, structure };

class Directory {
 public:
  // Finds the end record and reads the directory through `cache`, which must outlive the result
  // (names point into it). Fails with not_a_checkpoint if there is no end record at all, with
  // corrupt or unsupported as the class comment describes.
  static Result<Directory> read(bytes::ReadCache& cache, std::uint64_t max_directory_bytes,
                                Refusals refusals = Refusals::all);

  // In directory order. Torch writes directory and records in the same order.
  std::span<const Record> records() const noexcept { return records_; }
  // The top folder of the first record with its slash: "archive/". Empty if it has none.
  std::string_view top_folder() const noexcept { return top_folder_; }
  // Returns the name without the top folder; the whole name for a record outside it.
  std::string_view short_name(const Record& record) const noexcept;
  // Finds a record by its name without the top folder, case-sensitive. nullptr if there is none.
  const Record* find(std::string_view short_name) const noexcept;
  // Finds a record whose name differs from this one only in the case of ASCII letters; nullptr if
  // there is none. Readers that ignore case find it where find() fails.
  const Record* find_in_other_case(std::string_view short_name) const;
  // Finds the record of this name in another top folder than the archive's; nullptr without any.
  const Record* find_in_other_folder(std::string_view short_name) const noexcept;
  // The storages "data/0", "data/1", ... by number, without comparing names. It has all storages
  // whose numbers are below the count of records; none if there are few.
  const StorageNumbers& storages() const noexcept { return storages_; }
  // Finds a record by its whole name.
  const Record* find_full(std::string_view full_name) const noexcept;
  // Absolute offset of the first central directory entry, where the records end.
  std::uint64_t offset() const noexcept { return offset_; }
  // Bytes before the archive, 0 for genuine files. torch's layout arithmetic counts from here.
  std::uint64_t archive_start() const noexcept { return archive_start_; }
  // Absolute offset of the first record in the file: 0 for genuine files.
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

  bytes::Buffer memory_;  // of records_ and the table of storages_
  std::span<const Record> records_;
  StorageNumbers storages_;
  NameIndex names_;  // of all other records
  // The few records outside the top folder, or with a capital behind it.
  std::vector<std::uint32_t> odd_names_;
  std::vector<std::uint64_t> sorted_headers_;  // empty if the records are in file order
  std::string_view top_folder_;
  std::uint64_t offset_ = 0;
  std::uint64_t archive_start_ = 0;
};

}  // namespace weightmap::zip
