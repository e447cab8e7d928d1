// Names of files that occur in other files.
#pragma once

#include <string_view>

namespace weightmap::sets {

// True if every reader, on any system, resolves this name to a file beside the naming one or below.
bool stays_below(std::string_view name) noexcept;

}  // namespace weightmap::sets
