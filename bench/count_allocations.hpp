// Counts this program's calls of operator new.
#pragma once

#include <cstdint>

std::uint64_t allocation_count() noexcept;
