// The archive of a checkpoint with reserved storages: the places of the status bytes, the storages
// and their checksums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/zip/directory.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/file/file_lock.hpp"
#include "runtime/system/write/write_all.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

class ReservedFile {
 public:
  struct Storage {
    std::uint64_t number;
    std::uint64_t offset;
    std::uint64_t nbytes;
  };

  // Opens the file for writing, with a shared lock that other fillers share. Fails as
  // CheckpointFill::open() does.
  static Result<std::unique_ptr<ReservedFile>> open(const std::filesystem::path& path);

  const os::File& file() const noexcept { return file_; }
  // The reserved storages by number.
  const std::vector<Storage>& storages() const noexcept { return storages_; }
  // Returns nullptr if the storage was not reserved.
  const Storage* find(std::string_view key) const noexcept;

  // Reads the current status byte of each storage.
  Result<std::string> marks() const;
  Result<void> mark_written(const Storage& storage) const;
  // Called before the first write. A forked child takes a lock of its own, and fails if the file
  // was sealed meanwhile or is being sealed.
  Result<void> join() const;

  // Does what CheckpointFill::seal() does. Precondition: all storages are written.
  Result<void> seal(const Progress& progress);

 private:
  explicit ReservedFile(os::File file)
      : file_(std::move(file)), lock_(file_), cache_(file_, memory_) {}
  Result<void> lock_shared() const;
  Result<void> write_at(std::uint64_t offset, std::span<const std::byte> content) const {
    return os::write_at(file_.descriptor(), offset, content);
  }
  Result<void> read_records();
  Result<void> find_storages();
  Result<std::uint64_t> payload_of(const zip::Record& record) const;
  // Computes the checksum of the record's content and writes it to its places.
  Result<void> sum(const zip::Record& record, std::uint64_t payload, std::uint32_t& crc);
  Result<void> put_checksum(const zip::Record& record, std::uint64_t payload, std::uint32_t crc);
  Result<void> seal_alone(const Progress& progress);
  Result<void> write_checksums(const Progress& progress);
  Result<void> write_checksum_of_marks();
  Result<void> write_serialization_id();
  // Flushes the file to the disk. If that fails, the system may have dropped dirty pages and report
  // success the next time, so all storages then count as unwritten.
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
