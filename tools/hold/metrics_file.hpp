// A daemon's metrics for Prometheus, as a file for the textfile collector of a node_exporter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tools/support/json_out.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::hold {

// Returns the text exposition format, version 0.0.4, of a status from Keeper::describe(). Omits
// figures that are null or unknown. The label `checkpoint` is the path, with U+FFFD for invalid
// UTF-8.
std::string metrics_text(const Json& status, std::optional<std::uint64_t> read_bytes);

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
