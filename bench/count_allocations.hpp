// How often this program has called operator new.
#pragma once

#include <cstdint>

std::uint64_t allocation_count() noexcept;
