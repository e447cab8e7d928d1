// The files of one write, none of which has its name before all are whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "runtime/write/content_file.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

class FileSet {
 public:
  // `bytes`: of the contents of all files, as `progress` is told them.
  FileSet(NewFileOptions options, Progress progress, std::uint64_t bytes)
      : options_(std::move(options)), written_(std::move(progress), bytes) {}
  FileSet(const FileSet&) = delete;
  FileSet& operator=(const FileSet&) = delete;

  // Gets the space.
  Result<void> add(std::filesystem::path path, std::uint64_t bytes);
  std::vector<ContentFile>& files() noexcept { return files_; }
  // Gives all their names, in order. Names that were free are free again if one cannot be had.
  Result<void> commit();

 private:
  NewFileOptions options_;
  WrittenBytes written_;
  std::vector<ContentFile> files_;
};

}  // namespace weightmap
