// A copy of a file that shares its blocks, and that nobody else can change or truncate.
#pragma once

#include "runtime/os/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// A reflink in the directory of the file: it has no name and is gone with its last descriptor and
// mapping. Fails with unsupported where the file system has no reflinks, with io if the system
// refuses otherwise or the file was written to since it was opened.
Result<File> take_snapshot(const File& source);

}  // namespace weightmap::os
