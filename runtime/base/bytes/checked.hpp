// Checked arithmetic on sizes from a file. All such sums use it.
#pragma once

#include <concepts>
#include <cstdint>

namespace weightmap::bytes {

// True if [offset, offset + length) lies within [0, size); never forms the sum.
constexpr bool contains(std::uint64_t size, std::uint64_t offset, std::uint64_t length) noexcept {
  return offset <= size && length <= size - offset;
}

// Returns true and sets *sum = a + b, or returns false if that does not fit T.
template <std::integral T>
[[nodiscard]] constexpr bool checked_add(T a, T b, T* sum) noexcept {
  return !__builtin_add_overflow(a, b, sum);
}

template <std::integral T>
[[nodiscard]] constexpr bool checked_mul(T a, T b, T* product) noexcept {
  return !__builtin_mul_overflow(a, b, product);
}

}  // namespace weightmap::bytes
