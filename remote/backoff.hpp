// How long to wait before a request is made again.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace weightmap::remote {

// `failures` in a row, from 1; `random` from all numbers of 32 bits; `asked` is the server's
// Retry-After, 0 without one. Doubles from 100 ms up to 10 s, of which the upper half is random, so
// that many clients do not come back at once.
constexpr std::chrono::milliseconds backoff(unsigned failures, std::uint32_t random,
                                            std::chrono::seconds asked) noexcept {
  using std::chrono::milliseconds;
  constexpr std::uint64_t longest = 10'000;
  constexpr std::chrono::seconds longest_asked{60};
  const std::uint64_t whole =
      std::min(longest, std::uint64_t{100} << std::min(std::max(failures, 1u) - 1, 7u));
  const std::uint64_t half = whole / 2;
  const milliseconds own{half + (half * random >> 32)};
  return std::max<milliseconds>(own, std::min(asked, longest_asked));
}

}  // namespace weightmap::remote
