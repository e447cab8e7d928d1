#include "tools/bench/cold/checksum.hpp"

#include <bit>
#include <cstring>

// Sanitizer runtimes are not initialised when the clone is chosen.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

namespace weightmap::cli::bench {

namespace {

std::uint64_t little_endian(std::uint64_t word) noexcept {
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}

// Uses the processor's widest vectors, as the libraries of other engines do. clang takes the
// attribute at the first declaration only.
WIDE std::uint64_t wide_checksum(std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t lanes = 32;
  std::uint64_t sums[lanes] = {};
  std::uint64_t words[lanes] = {};
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= sizeof words; at += sizeof words, left -= sizeof words) {
    std::memcpy(words, at, sizeof words);
    for (std::size_t i = 0; i < lanes; ++i) sums[i] += little_endian(words[i]);
  }
  std::memset(words, 0, sizeof words);
  if (left > 0) std::memcpy(words, at, left);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < lanes; ++i) sum += sums[i] + little_endian(words[i]);
  return sum;
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept { return wide_checksum(bytes); }

}  // namespace weightmap::cli::bench
