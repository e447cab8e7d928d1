// Writes to standard error from a signal handler, just before the process ends.
#pragma once

#include <unistd.h>

#include <string_view>

namespace weightmap::os {

// Async-signal-safe. Ignores failures.
inline void write_standard_error(std::string_view text) noexcept {
  if (::write(STDERR_FILENO, text.data(), text.size()) == -1) return;
}

}  // namespace weightmap::os
