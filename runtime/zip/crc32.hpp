// The CRC-32 of the zip format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace weightmap::zip {

// Continues from `before`, the CRC of what came earlier; 0 at the start.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

// The CRC of the last `rest_bytes` bytes of something, by those of its front and of the whole.
std::uint32_t crc32_behind(std::uint32_t front, std::uint32_t whole,
                           std::uint64_t rest_bytes) noexcept;

// " has CRC-32 0x0badcafe, the directory says 0x12345678": the end of every message about it.
[[gnu::cold]] std::string crc_mismatch(std::uint32_t found, std::uint32_t expected);

}  // namespace weightmap::zip
