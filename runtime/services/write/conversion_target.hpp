// Decides which files the target path of a conversion means.
#pragma once

#include <filesystem>

#include "weightmap/convert.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct ConversionTarget {
  WrittenFormat format;
  std::filesystem::path path;    // of a single file; shards derive their names from it
  bool has_index = false;        // even for one file
  std::filesystem::path folder;  // to be created; empty: none
};

Result<ConversionTarget> conversion_target(const std::filesystem::path& to,
                                           const ConvertOptions& options);

}  // namespace weightmap
