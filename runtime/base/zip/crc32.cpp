#include "runtime/base/zip/crc32.hpp"

#include <libdeflate.h>

namespace weightmap::zip {
namespace {

std::string hex(std::uint32_t value) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += digits[value >> shift & 0xF];
  return text;
}

// The product of two polynomials modulo that of the CRC, whose bit 31 is the coefficient of x^0.
std::uint32_t multiply(std::uint32_t a, std::uint32_t b) noexcept {
  constexpr std::uint32_t polynomial = 0xEDB88320;
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? polynomial : 0);
  }
  return product;
}

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  if (bytes.empty()) return before;  // libdeflate returns 0 for a null address
  return libdeflate_crc32(before, bytes.data(), bytes.size());
}

// The CRC of a concatenation is that of the front, times x^8 for each byte of the rest, plus that
// of the rest.
std::uint32_t crc32_of_both(std::uint32_t front, std::uint32_t rest,
                            std::uint64_t rest_bytes) noexcept {
  std::uint32_t shifted = front;
  std::uint32_t power = 0x00800000;  // x^8, and its squares
  for (std::uint64_t bits = rest_bytes; bits != 0; bits >>= 1) {
    if ((bits & 1) != 0) shifted = multiply(shifted, power);
    power = multiply(power, power);
  }
  return shifted ^ rest;
}

// Adding a part twice takes it away.
std::uint32_t crc32_behind(std::uint32_t front, std::uint32_t whole,
                           std::uint64_t rest_bytes) noexcept {
  return crc32_of_both(front, whole, rest_bytes);
}

std::string crc_mismatch(std::uint32_t found, std::uint32_t expected) {
  return " has CRC-32 " + hex(found) + ", the directory says " + hex(expected);
}

}  // namespace weightmap::zip
