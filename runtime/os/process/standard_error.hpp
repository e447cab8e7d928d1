// Standard error for those who are in a signal handler, just before the process ends.
#pragma once

#include <string_view>

namespace weightmap::os {

// Async-signal-safe. What cannot be written is lost.
void write_standard_error(std::string_view text) noexcept;

}  // namespace weightmap::os
