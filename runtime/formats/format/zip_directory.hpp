// The first step of each format that is a zip archive.
#pragma once

#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/zip/directory.hpp"
#include "runtime/formats/format/format.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::format {

// Reads the central directory of `file` through `windows`. If the file is no zip archive, the error
// names its actual type.
Result<zip::Directory> read_directory(const bytes::ByteSource& file, bytes::ReadCache& cache,
                                      const Limits& limits,
                                      zip::Refusals refusals = zip::Refusals::all);

// Returns the directory that was read to identify the format of `input`, else reads it.
Result<zip::Directory> take_directory(Input& input, const Limits& limits);

// Returns the error that names the actual type of a file without a zip archive.
Result<Error> describe_foreign_file(const bytes::ByteSource& file);

}  // namespace weightmap::format
