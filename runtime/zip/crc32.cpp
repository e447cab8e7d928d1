#include "runtime/zip/crc32.hpp"

#include <libdeflate.h>

namespace weightmap::zip {
namespace {

std::string hex(std::uint32_t value) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += digits[value >> shift & 0xF];
  return text;
}

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  if (bytes.empty()) return before;  // libdeflate returns 0 for a null address
  return libdeflate_crc32(before, bytes.data(), bytes.size());
}

std::string crc_mismatch(std::uint32_t found, std::uint32_t expected) {
  return " has CRC-32 " + hex(found) + ", the directory says " + hex(expected);
}

}  // namespace weightmap::zip
