// Which version of a file a path means now.
#pragma once

#include <filesystem>

#include "weightmap/generation.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::hold {

// Fails with io if there is no file.
Result<Generation> generation_at(const std::filesystem::path& path);

}  // namespace weightmap::cli::hold
