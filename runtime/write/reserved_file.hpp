// A checkpoint's file with reserved storages, as an archive: where the marks, the storages and
// their checksums stand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bytes/read_cache.hpp"
#include "runtime/os/file/file.hpp"
#include "runtime/os/file/file_lock.hpp"
#include "runtime/zip/directory.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

class ReservedFile {
 public:
  struct Storage {
    std::uint64_t number;
    std::uint64_t offset;
    std::uint64_t nbytes;
  };

  // Open for writing, and locked as shared with others that do the same. Fails as
  // CheckpointFill::open() does.
  static Result<std::unique_ptr<ReservedFile>> open(const std::filesystem::path& path);

  const os::File& file() const noexcept { return file_; }
  // The reserved ones, by their numbers.
  const std::vector<Storage>& storages() const noexcept { return storages_; }
  // nullptr if it was not reserved.
  const Storage* find(std::string_view key) const noexcept;

  // The letter of each storage, now.
  Result<std::string> marks() const;
  Result<void> mark_written(const Storage& storage) const;
  // To be called before anything is written: a forked child takes a lock of its own, and fails if
  // the file was sealed meanwhile, or is being sealed.
  Result<void> join() const;

  // What CheckpointFill::seal() does, for a file of which all storages are written.
  Result<void> seal(const Progress& progress);

 private:
  explicit ReservedFile(os::File file)
      : file_(std::move(file)), lock_(file_), cache_(file_, memory_) {}
  Result<void> lock_shared() const;
  Result<void> read_records();
  Result<void> find_storages();
  Result<std::uint64_t> payload_of(const zip::Record& record) const;
  // Computes the checksum of what the record holds, and puts it where it stands.
  Result<void> sum(const zip::Record& record, std::uint64_t payload, std::uint32_t& crc);
  Result<void> put_checksum(const zip::Record& record, std::uint64_t payload, std::uint32_t crc);
  Result<void> seal_alone(const Progress& progress);
  Result<void> write_checksums(const Progress& progress);
  Result<void> write_checksum_of_marks();
  Result<void> write_serialization_id();
  // Writes the file to the disk. If that fails, the system may have given up what it could not
  // write, and would say the next time that all is well; so no storage counts as written then.
  Result<void> sync();

  std::pmr::unsynchronized_pool_resource memory_;
  os::File file_;
  mutable os::FileLock lock_;
  bytes::ReadCache cache_;
  zip::Directory directory_;
  std::vector<Storage> storages_;
  std::uint64_t marks_at_ = 0;
  std::uint64_t marks_length_ = 0;
  std::vector<std::uint32_t> checksums_;  // of all records, in directory order
};

}  // namespace weightmap
