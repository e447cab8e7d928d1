// A checkpoint that is a dict of names and tensors and nothing else, as shards of a model are.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "weightmap/archive.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

class FlatCheckpoint {
 public:
  // Fails with unsupported, naming the first value that is no plain tensor, for any other
  // checkpoint; with invalid_argument for a name that the dict has twice.
  static Result<FlatCheckpoint> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  const Checkpoint& checkpoint() const noexcept { return checkpoint_; }
  const ArchiveReader& archive() const noexcept { return archive_; }
  // In the order of the dict, with the keys as names. Borrowed.
  const std::vector<NamedTensor>& tensors() const noexcept { return tensors_; }

 private:
  FlatCheckpoint(std::filesystem::path path, Checkpoint checkpoint, ArchiveReader archive)
      : path_(std::move(path)), checkpoint_(std::move(checkpoint)), archive_(std::move(archive)) {}
  Result<void> list_tensors();

  std::filesystem::path path_;
  Checkpoint checkpoint_;
  ArchiveReader archive_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace weightmap::cli
