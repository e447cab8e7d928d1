// Arithmetic on sizes that came from a file. The one place where such sums are made.
#pragma once

#include <concepts>
#include <cstdint>

namespace weightmap::bytes {

// Whether [offset, offset + length) lies within [0, size), without ever forming the sum.
constexpr bool contains(std::uint64_t size, std::uint64_t offset, std::uint64_t length) noexcept {
  return offset <= size && length <= size - offset;
}

// True and *sum = a + b, or false if that does not fit T.
template <std::integral T>
[[nodiscard]] constexpr bool checked_add(T a, T b, T* sum) noexcept {
  return !__builtin_add_overflow(a, b, sum);
}

template <std::integral T>
[[nodiscard]] constexpr bool checked_mul(T a, T b, T* product) noexcept {
  return !__builtin_mul_overflow(a, b, product);
}

}  // namespace weightmap::bytes
