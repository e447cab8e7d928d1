// The first steps that every open shares: the file, private copies of its metadata, its directory.
#pragma once

#include <filesystem>
#include <memory_resource>

#include "runtime/bytes/source.hpp"
#include "runtime/bytes/windows.hpp"
#include "runtime/zip/directory.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// The central directory of `file`, through `windows`. If the file is no zip archive at all, the
// error says what it is instead.
Result<zip::Directory> read_directory(const bytes::Source& file, bytes::Windows& windows,
                                      const Limits& limits);

// `error` with the path it is about, escaped.
tl::unexpected<Error> about_file(Error error, const std::filesystem::path& path);

}  // namespace weightmap
