// The CRC-32 of the zip format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace weightmap::zip {

// Continues from `before`, the CRC of the preceding bytes; 0 at the start.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

// Returns the CRC of a front with `rest_bytes` more bytes behind it, computed from those of both.
std::uint32_t crc32_of_both(std::uint32_t front, std::uint32_t rest,
                            std::uint64_t rest_bytes) noexcept;

// Returns the CRC of the last `rest_bytes` bytes, computed from those of the front and the whole.
std::uint32_t crc32_behind(std::uint32_t front, std::uint32_t whole,
                           std::uint64_t rest_bytes) noexcept;

// Returns " has CRC-32 0x0badcafe, the directory says 0x12345678", the end of each such message.
[[gnu::cold]] std::string crc_mismatch(std::uint32_t found, std::uint32_t expected);

}  // namespace weightmap::zip
