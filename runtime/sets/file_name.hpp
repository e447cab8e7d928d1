// Names of files that other files give.
#pragma once

#include <string_view>

namespace weightmap::sets {

// Whether no reader comes with this name to a file that lies elsewhere than beside the one that
// gives it or in a folder there, on any system.
bool stays_below(std::string_view name) noexcept;

}  // namespace weightmap::sets
