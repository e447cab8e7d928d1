// Replaces a file by another, durably.
#pragma once

#include <filesystem>

#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

struct PublishedFile {
  Generation generation;
  bool replaced = false;
  bool copied = false;
};

struct PublishHow {
  bool copy = false;
  Progress progress = {};  // for a copy
};

// `file` was opened at `from`. See weightmap/new_file.hpp.
Result<PublishedFile> publish_file(const File& file, const std::filesystem::path& from,
                                   const std::filesystem::path& target, const PublishHow& how);

}  // namespace weightmap::os
