// The CRC-32 of the zip format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weightmap::zip {

// Continues from `before`, the CRC of what came earlier; 0 at the start.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

}  // namespace weightmap::zip
