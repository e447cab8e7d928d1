// The metrics file of a daemon, for the textfile collector of a node_exporter.
#pragma once

#include <filesystem>
#include <string_view>

#include "tools/support/json_out.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::hold {

// Replaced atomically at each update. Removed at the end, since nothing is held then; a killed
// daemon leaves it behind.
class MetricsFile {
 public:
  // Fails with invalid_argument if the existing file is not a daemon's metrics, so that no other
  // file is lost. Writes nothing.
  static Result<MetricsFile> at(const std::filesystem::path& path);

  MetricsFile(MetricsFile&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  MetricsFile& operator=(MetricsFile&&) = delete;
  ~MetricsFile();

  // Fails with io if the system refuses; the previous content stays then.
  Result<void> write(const Json& status) const;

 private:
  explicit MetricsFile(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;  // absolute; empty: moved from
};

}  // namespace weightmap::cli::hold
