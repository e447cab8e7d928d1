// Raw deflate, as zip stores it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weightmap/result.hpp"

namespace weightmap::zip {

// Returns the maximum inflated size of `compressed_size` bytes: deflate spends at least one bit on
// 129 bytes. Saturates. It exposes impossible sizes before memory is allocated.
std::uint64_t max_inflated_size(std::uint64_t compressed_size) noexcept;

// Fills `out` exactly. Fails with corrupt if the stream is damaged, yields fewer or more bytes, or
// ends before `compressed` does. Never writes beyond `out`.
Result<void> inflate(std::span<const std::byte> compressed, std::span<std::byte> out);

}  // namespace weightmap::zip
