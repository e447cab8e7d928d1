// The choices of a mutator, determined by libFuzzer's seed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>

namespace weightmap::fuzz {

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}

  // Precondition: count > 0.
  std::size_t below(std::size_t count) { return engine_() % count; }
  // True once in `count` times.
  bool once_in(std::size_t count) { return below(count) == 0; }
  // Returns any number; small ones and those next to a power of two are more frequent.
  std::uint64_t number() {
    const std::uint64_t wide = std::uint64_t{engine_()} << 32 | engine_();
    switch (below(4)) {
      case 0:
        return below(20);
      case 1:
        return (std::uint64_t{1} << below(64)) + below(3) - 1;
      case 2:
        return std::numeric_limits<std::uint64_t>::max() - below(20);
      default:
        return wide >> below(64);
    }
  }

 private:
  std::minstd_rand engine_;
};

}  // namespace weightmap::fuzz
