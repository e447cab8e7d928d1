#include "runtime/zip/crc32.hpp"

#include <isa-l/crc.h>

namespace weightmap::zip {
namespace {

// The vector code's first call asks the processor what it can do (slow in a virtual machine) and
// loads pages of the library, about 10 us in all. The portable code does this much in less.
constexpr std::size_t portable_bytes_max = 4096;

std::string hex(std::uint32_t value) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += digits[value >> shift & 0xF];
  return text;
}

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  if (bytes.size() <= portable_bytes_max)
    return crc32_gzip_refl_base(before, const_cast<unsigned char*>(data), bytes.size());
  return crc32_gzip_refl(before, data, bytes.size());
}

std::string crc_mismatch(std::uint32_t found, std::uint32_t expected) {
  return " has CRC-32 " + hex(found) + ", the directory says " + hex(expected);
}

}  // namespace weightmap::zip
