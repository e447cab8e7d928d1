// Adds a grammar-aware mutator to a libFuzzer target; one for each target's file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fuzz/mutate_bytes.hpp"
#include "fuzz/random.hpp"

namespace weightmap::fuzz {

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
