// What standard output leads to.
#pragma once

#include <cstddef>

namespace weightmap::cli {

bool prints_to_terminal() noexcept;

// Cells in a line: of the terminal, or 80 where there is none.
std::size_t terminal_width() noexcept;

}  // namespace weightmap::cli
