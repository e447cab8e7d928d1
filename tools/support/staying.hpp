// Why bytes stay in the page cache although they were to be evicted.
#pragma once

#include <string>
#include <string_view>

#include "weightmap/residency.hpp"

namespace weightmap::cli {

// "memory_file_system", "unwritten" or "in_use"; empty where nothing stays.
std::string_view staying_reason(const EvictReport& report) noexcept;

// The same for people; empty where nothing stays.
std::string staying_text(const EvictReport& report);

}  // namespace weightmap::cli
