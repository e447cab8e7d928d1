// The files of one write; none gets its name before all are complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "runtime/services/write/content_file.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

class FileSet {
 public:
  // `bytes` is the size of all contents together, for `progress`.
  FileSet(NewFileOptions options, Progress progress, std::uint64_t bytes)
      : options_(std::move(options)), written_(std::move(progress), bytes) {}
  FileSet(const FileSet&) = delete;
  FileSet& operator=(const FileSet&) = delete;

  // Adds a file and reserves its space.
  Result<void> add(std::filesystem::path path, std::uint64_t bytes);
  std::vector<ContentFile>& files() noexcept { return files_; }
  // Gives all files their names, in order. If one rename fails, formerly free names are free again.
  Result<void> commit();

 private:
  NewFileOptions options_;
  WrittenBytes written_;
  std::vector<ContentFile> files_;
};

}  // namespace weightmap
