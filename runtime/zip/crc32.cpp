#include "runtime/zip/crc32.hpp"

#include <isa-l/crc.h>

namespace weightmap::zip {
namespace {

// The vector code's first call asks the processor what it can do (slow in a virtual machine) and
// loads pages of the library, about 10 us in all. The portable code does this much in less.
constexpr std::size_t portable_bytes_max = 4096;

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  if (bytes.size() <= portable_bytes_max)
    return crc32_gzip_refl_base(before, const_cast<unsigned char*>(data), bytes.size());
  return crc32_gzip_refl(before, data, bytes.size());
}

}  // namespace weightmap::zip
