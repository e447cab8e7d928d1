// The files of an open checkpoint.
#pragma once

#include <cstddef>
#include <vector>

#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

// Returns the files of a checkpoint: one, or those of a set, with its index.
inline std::vector<SourceInfo> files_of(const Checkpoint& checkpoint) {
  std::vector<SourceInfo> files;
  for (std::size_t i = 0; i < checkpoint.source_count(); ++i)
    if (!checkpoint.source(i).is_copy) files.push_back(checkpoint.source(i));
  return files;
}

}  // namespace weightmap::cli
