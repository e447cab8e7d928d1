// What the path of a conversion asks for.
#pragma once

#include <filesystem>

#include "weightmap/convert.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct ConversionTarget {
  WrittenFormat format;
  std::filesystem::path path;    // of the file, if one has all tensors; shards are named by it
  bool has_index = false;        // also then
  std::filesystem::path folder;  // to be made; empty: none
};

Result<ConversionTarget> conversion_target(const std::filesystem::path& to,
                                           const ConvertOptions& options);

}  // namespace weightmap
