// Writes to standard error from a signal handler, just before the process ends.
#pragma once

#include <string_view>

namespace weightmap::os {

// Async-signal-safe. Ignores failures.
void write_standard_error(std::string_view text) noexcept;

}  // namespace weightmap::os
