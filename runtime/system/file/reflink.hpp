// A copy of a file that shares its blocks, and that other processes cannot change or truncate.
#pragma once

#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Makes a reflink in the file's directory. It has no name and disappears with its last descriptor
// and mapping. Fails with unsupported if the file system has no reflinks, with io if the system
// refuses otherwise or the file was written to since it was opened.
Result<File> make_reflink(const File& source);

}  // namespace weightmap::os
