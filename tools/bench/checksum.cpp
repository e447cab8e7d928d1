#include "tools/bench/checksum.hpp"

#include <bit>
#include <cstring>

namespace weightmap::cli::bench {

static_assert(std::endian::native == std::endian::little, "words are summed as they lie in memory");

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = 0;
  std::uint64_t word = 0;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= sizeof word; at += sizeof word, left -= sizeof word) {
    std::memcpy(&word, at, sizeof word);
    sum += word;
  }
  word = 0;
  if (left > 0) std::memcpy(&word, at, left);
  return sum + word;
}

}  // namespace weightmap::cli::bench
