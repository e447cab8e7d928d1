// A checkpoint that is written again: its records and what they mean, both of the same file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightmap/archive.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/options.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/record_content.hpp"

namespace weightmap {

struct NewRecord {
  std::string name;
  RecordContent content;
  bool is_storage;  // of the checkpoint: the whole record is one
};

// How a new file is laid out.
struct NewLayout {
  std::uint64_t alignment;  // of storages, see CheckpointWriterOptions
  bool crc32;
};

class SourceArchive {
 public:
  // `checkpoint` is the file's.
  static Result<SourceArchive> open(const std::filesystem::path& path, Checkpoint checkpoint,
                                    const OpenOptions& options);

  const ArchiveReader& archive() const noexcept { return archive_; }
  const Checkpoint& checkpoint() const noexcept { return checkpoint_; }

  NewLayout layout() const;
  // In the order of the file, but for what ArchiveWriter writes at the end by itself, and for what
  // only moves others to their places. Their contents borrow from this.
  Result<std::vector<NewRecord>> records() const;

  // Writes the records to a new file, and returns its size. Fails with io if the source was written
  // to meanwhile.
  Result<std::uint64_t> write(const std::vector<NewRecord>& records, const NewLayout& layout,
                              const std::filesystem::path& to, const NewFileOptions& file,
                              const Progress& progress) const;

 private:
  SourceArchive(ArchiveReader archive, Checkpoint checkpoint, std::uint64_t version)
      : archive_(std::move(archive)), checkpoint_(std::move(checkpoint)), version_(version) {}
  std::uint64_t alignment() const;

  ArchiveReader archive_;
  Checkpoint checkpoint_;
  std::uint64_t version_;
};

}  // namespace weightmap
