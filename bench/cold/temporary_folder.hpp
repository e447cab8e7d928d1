// A folder that is gone afterwards.
#pragma once

#include <filesystem>

#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

class TemporaryFolder {
 public:
  // A new one in `parent`. Fails with io if nothing may be written there.
  static Result<TemporaryFolder> create(const std::filesystem::path& parent);

  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();  // removes it with what is in it

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  explicit TemporaryFolder(std::filesystem::path path) noexcept : path_(std::move(path)) {}
  std::filesystem::path path_;  // empty: moved from
};

}  // namespace weightmap::cli::bench
