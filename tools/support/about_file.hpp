// Errors that name their file.
#pragma once

#include <filesystem>
#include <utility>

#include "tools/support/text.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli {

inline tl::unexpected<Error> about_file(const std::filesystem::path& path, Error error) {
  error.file = printable(path.native());
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace weightmap::cli
