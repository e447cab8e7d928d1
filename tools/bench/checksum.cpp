#include "tools/bench/checksum.hpp"

#include <bit>
#include <cstring>

namespace weightmap::cli::bench {

namespace {

std::uint64_t little_endian(std::uint64_t word) noexcept {
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = 0;
  std::uint64_t word = 0;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= sizeof word; at += sizeof word, left -= sizeof word) {
    std::memcpy(&word, at, sizeof word);
    sum += little_endian(word);
  }
  word = 0;
  if (left > 0) std::memcpy(&word, at, left);
  return sum + little_endian(word);
}

}  // namespace weightmap::cli::bench
