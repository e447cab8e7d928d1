// Sizes in whole units.
#pragma once

#include <cstdint>

namespace weightmap::bytes {

// The next multiple of `unit` that is not below `size`. Precondition: it fits 64 bits; sizes that
// are only stated by a file go through checked.hpp.
constexpr std::uint64_t round_up(std::uint64_t size, std::uint64_t unit) noexcept {
  return (size + unit - 1) / unit * unit;
}

}  // namespace weightmap::bytes
