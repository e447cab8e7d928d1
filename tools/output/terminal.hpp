// The destination of standard output.
#pragma once

#include <cstddef>

namespace weightmap::cli {

bool prints_to_terminal() noexcept;

// Returns the columns of the terminal, or 80 without one.
std::size_t terminal_width() noexcept;

}  // namespace weightmap::cli
