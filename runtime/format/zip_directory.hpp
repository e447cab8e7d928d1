// The first step of every format that is a zip archive.
#pragma once

#include "runtime/bytes/read_cache.hpp"
#include "runtime/zip/directory.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::format {

// The central directory of `file`, through `cache`. If the file is no zip archive at all, the
// error says what it is instead.
Result<zip::Directory> read_directory(const bytes::ByteSource& file, bytes::ReadCache& cache,
                                      const Limits& limits);

// The error that says what a file is in which there is no zip archive.
Result<Error> describe_foreign_file(const bytes::ByteSource& file);

}  // namespace weightmap::format
