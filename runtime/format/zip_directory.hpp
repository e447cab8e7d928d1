// The first step of every format that is a zip archive.
#pragma once

#include "runtime/bytes/windows.hpp"
#include "runtime/format/format.hpp"
#include "runtime/zip/directory.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::format {

// The central directory of `file`, through `windows`. If the file is no zip archive at all, the
// error says what it is instead.
Result<zip::Directory> read_directory(const bytes::Source& file, bytes::Windows& windows,
                                      const Limits& limits);

// The directory that was read to tell the format of `input`, else read now.
Result<zip::Directory> take_directory(Input& input, const Limits& limits);

// The error that says what a file is in which there is no zip archive.
Result<Error> describe_foreign_file(const bytes::Source& file);

}  // namespace weightmap::format
