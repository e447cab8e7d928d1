// A copy of a file that nobody else can change or cut short.
#pragma once

#include <string_view>

#include "mmap/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

struct Snapshot {
  File file;               // has no name; gone when the last descriptor and mapping are
  std::string_view means;  // "reflink" or "memfd"
};

// Shares the blocks of the file where the file system can do that, in the file's folder and without
// copying; else copies it into sealed memory. Fails with io if neither can be had, or if the file
// was written to since it was opened.
Result<Snapshot> take_snapshot(const File& source);

}  // namespace weightmap::os
