// A temporary folder.
#pragma once

#include <filesystem>

#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

class TemporaryFolder {
 public:
  // Creates a folder in `parent`. Fails with io if that is not writable.
  static Result<TemporaryFolder> create(const std::filesystem::path& parent);

  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();  // removes it with its contents

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  explicit TemporaryFolder(std::filesystem::path path) noexcept : path_(std::move(path)) {}
  std::filesystem::path path_;  // empty: moved from
};

}  // namespace weightmap::cli::bench
