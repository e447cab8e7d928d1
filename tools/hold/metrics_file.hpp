// The file that a daemon's metrics are in, for the textfile collector of a node_exporter.
#pragma once

#include <filesystem>
#include <string_view>

#include "tools/support/json_out.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::hold {

// Written anew each time, so that who reads it sees one state or the next. Removed in the end, for
// then nothing is held; a daemon that is killed leaves it behind.
class MetricsFile {
 public:
  // Fails with invalid_argument if what is there is no metrics of a daemon, so that no other file
  // is lost. Writes nothing.
  static Result<MetricsFile> at(const std::filesystem::path& path);

  MetricsFile(MetricsFile&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  MetricsFile& operator=(MetricsFile&&) = delete;
  ~MetricsFile();

  // Fails with io if the system refuses; what was written before stays then.
  Result<void> write(const Json& status) const;

 private:
  explicit MetricsFile(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;  // absolute; empty: moved from
};

}  // namespace weightmap::cli::hold
