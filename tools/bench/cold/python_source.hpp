// The program that runs the engines of other libraries.
#pragma once

#include <string_view>

namespace weightmap::cli::bench {

// Returns python_engines.py, for `python -c`.
std::string_view python_source() noexcept;

}  // namespace weightmap::cli::bench
