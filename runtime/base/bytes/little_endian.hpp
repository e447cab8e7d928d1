// Reads and writes one little-endian integer at a place that the caller has checked.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace weightmap::bytes {

// Precondition: sizeof(T) bytes can be read at `from`, which need not be aligned.
template <std::unsigned_integral T>
T load_le(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (std::endian::native == std::endian::big) {
    T swapped = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      swapped = static_cast<T>(swapped | std::to_integer<T>(from[i]) << (8 * i));
    return swapped;
  }
  return value;
}

// Precondition: sizeof(T) bytes can be written at `to`.
template <std::unsigned_integral T>
void store_le(std::byte* to, T value) noexcept {
  if constexpr (std::endian::native == std::endian::big)
    for (std::size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
  else
    std::memcpy(to, &value, sizeof value);
}

}  // namespace weightmap::bytes
