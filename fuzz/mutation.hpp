// What mutators are made of: the choices, bytes without a grammar, and WEIGHTMAP_FUZZ_MUTATOR,
// which gives a target the mutator of a grammar; one for each target's file.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

// libFuzzer's own mutation.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace weightmap::fuzz {

// Determined by libFuzzer's seed.
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

// The result may be longer by at most `growth` bytes. `Bytes` contains bytes or characters.
template <class Bytes>
void mutate_bytes(Bytes& bytes, std::size_t growth = 16) {
  const std::size_t size = bytes.size();
  bytes.resize(size + growth);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, bytes.size()));
}

// Replaces the input by the result of `mutate`; if that is too long, mutates bytes instead.
template <class Mutate>
std::size_t mutate_in_place(std::uint8_t* data, std::size_t size, std::size_t max_size,
                            unsigned seed, Mutate mutate) {
  Random random(seed);
  const std::vector<std::byte> made =
      mutate(std::as_bytes(std::span<const std::uint8_t>(data, size)), random);
  if (made.size() > max_size || made.empty()) return LLVMFuzzerMutate(data, size, max_size);
  std::transform(made.begin(), made.end(), data,
                 [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
  return made.size();
}

}  // namespace weightmap::fuzz

#define WEIGHTMAP_FUZZ_MUTATOR(mutate)                                                  \
  extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,  \
                                                 std::size_t max_size, unsigned seed) { \
    return weightmap::fuzz::mutate_in_place(data, size, max_size, seed, mutate);        \
  }
