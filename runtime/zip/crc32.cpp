#include "runtime/zip/crc32.hpp"

#include <isa-l/crc.h>

namespace weightmap::zip {

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  return crc32_gzip_refl(before, reinterpret_cast<const unsigned char*>(bytes.data()),
                         bytes.size());
}

}  // namespace weightmap::zip
