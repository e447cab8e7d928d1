// Proves that all engines read the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weightmap::cli::bench {

// Returns the sum, modulo 2^64, of the bytes as little-endian 8-byte words; zeros complete the last
// word. It runs at the speed of memory. Sums of tensors add up in any order.
std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace weightmap::cli::bench
