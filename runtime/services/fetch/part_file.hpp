// The file of a fetch until it is whole: FILE.part, with its journal beside it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes/range_set.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/unique_fd.hpp"
#include "runtime/system/write/direct_writer.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Fails with io if the disk of the folder has not so many bytes left.
Result<void> check_room(const std::filesystem::path& folder, std::uint64_t size);
// Makes the folder of a file, and those above it. Fails with io, about the file.
Result<void> make_folder_of(const std::filesystem::path& file);

// Errors name no file; they are about FILE. Not thread-safe.
class PartFile {
 public:
  // Opens or creates the two files, and locks the first one as long as this exists. Keeps what is
  // there of this version, or begins again. Allocates the whole file. Fails with io if the system
  // refuses, if the disk has too little room, or if another fetch has the lock; with
  // invalid_argument if something that is no file has the name of FILE.
  // `version`: the first line of its journal (journal.hpp), or empty for one without a name.
  static Result<PartFile> open(const std::filesystem::path& path, const std::string& version,
                               std::uint64_t size);

  // Removes what fetches that were killed have left of a file which needs no fetch, but for what
  // another fetch has locked.
  static void remove_rests(const std::filesystem::path& path);

  // What an earlier fetch has left on the disk, and what the journal has since.
  const bytes::RangeSet& present() const noexcept { return present_; }
  const os::File& file() const noexcept { return *file_; }
  bool is_whole() const { return present_.contains({0, file_->size()}); }

  // What is written stays in the page cache, for a sum that reads it again.
  void keep_cached() noexcept { writer_->use_cache(); }
  Result<void> write(std::uint64_t offset, std::span<const std::byte> content);
  // Writes everything to the disk, then to the journal what that was.
  Result<void> sync();
  // The same, if it is worth it.
  Result<void> settle() {
    return written_bytes_ >= least_worth || is_late() ? sync() : Result<void>();
  }
  // Removes the two files.
  void remove_files() noexcept;
  // Gives the file its name, durably, and removes the journal. With `replaces`, in place of a file
  // of that name; otherwise fails with invalid_argument if there is one.
  Result<void> publish(bool replaces);

 private:
  PartFile(std::filesystem::path folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}
  std::string part_name() const { return name_ + ".part"; }
  std::string journal_name() const { return part_name() + ".journal"; }
  Result<void> open_locked();
  Result<void> begin(const std::string& first, std::uint64_t size);
  Result<void> begin_again(const std::string& first, std::uint64_t size);
  Result<void> append_to_journal(const std::string& lines);
  bool is_late() const noexcept;

  std::filesystem::path folder_;
  std::string name_;
  os::UniqueFd directory_;
  os::UniqueFd part_;
  os::UniqueFd journal_;
  std::uint64_t journal_bytes_ = 0;
  std::optional<os::File> file_;  // of `part_`
  std::unique_ptr<os::DirectWriter> writer_;
  bytes::RangeSet present_;
  static constexpr std::uint64_t least_worth = std::uint64_t{1} << 20;

  bytes::RangeSet written_;          // and not in the journal
  std::uint64_t written_bytes_ = 0;  // of these
  std::optional<Error> sync_failure_;
  std::chrono::steady_clock::time_point synced_ = std::chrono::steady_clock::now();
};

}  // namespace weightmap
