// What proves that engines read the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weightmap::cli::bench {

// The sum, modulo 2^64, of the bytes as little-endian words of eight; zeros complete the last word.
// Cheap enough to read at the speed of memory. Sums of tensors add up, in any order.
std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace weightmap::cli::bench
