// Reasons why bytes stay in the page cache after an eviction.
#pragma once

#include <string>
#include <string_view>

#include "weightmap/inspect.hpp"

namespace weightmap::cli {

// Returns "memory_file_system", "unwritten" or "in_use"; empty if nothing stays.
std::string_view staying_reason(const EvictReport& report) noexcept;

// Returns the same for the user; empty if nothing stays.
std::string staying_text(const EvictReport& report);

}  // namespace weightmap::cli
