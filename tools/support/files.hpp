// The files of checkpoints, and what is said of them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/support/text.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli {

// Returns the error with its file.
inline tl::unexpected<Error> about_file(const std::filesystem::path& path, Error error) {
  error.file = printable(path.native());
  return tl::unexpected<Error>(std::move(error));
}

// Replaces a file by this text, atomically and not durably: what is lost with the power is made
// again. Fails as NewFile does.
Result<void> replace_file(const std::filesystem::path& path, std::string_view text,
                          unsigned mode = 0666);

// Returns the files of a checkpoint: one, or those of a set, with its index.
inline std::vector<SourceInfo> files_of(const Checkpoint& checkpoint) {
  std::vector<SourceInfo> files;
  for (std::size_t i = 0; i < checkpoint.source_count(); ++i)
    if (!checkpoint.source(i).is_copy) files.push_back(checkpoint.source(i));
  return files;
}

// Returns why bytes stay in the page cache after an eviction: "memory_file_system", "unwritten" or
// "in_use"; empty if nothing stays.
std::string_view staying_reason(const EvictReport& report) noexcept;

// Returns the same for the user; empty if nothing stays.
std::string staying_text(const EvictReport& report);

}  // namespace weightmap::cli
