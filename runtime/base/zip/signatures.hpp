// The fixed parts of the zip format: signatures, lengths, sentinels.
#pragma once

#include <cstdint>

namespace weightmap::zip {

inline constexpr std::uint32_t local_header_signature = 0x04034b50;
inline constexpr std::uint32_t descriptor_signature = 0x08074b50;
inline constexpr std::uint32_t central_signature = 0x02014b50;
inline constexpr std::uint32_t end_signature = 0x06054b50;
inline constexpr std::uint32_t end64_signature = 0x06064b50;
inline constexpr std::uint32_t locator_signature = 0x07064b50;

inline constexpr std::uint64_t local_header_bytes = 30;
inline constexpr std::uint64_t central_entry_bytes = 46;
inline constexpr std::uint64_t end_bytes = 22;
inline constexpr std::uint64_t end64_bytes = 56;
inline constexpr std::uint64_t locator_bytes = 20;
inline constexpr std::uint64_t max_comment_bytes = 0xFFFF;

// Sentinels of 16-bit and 32-bit fields: the value is in the zip64 record or field instead.
inline constexpr std::uint16_t in_zip64_16 = 0xFFFF;
inline constexpr std::uint32_t in_zip64_32 = 0xFFFFFFFF;
inline constexpr std::uint16_t zip64_extra_id = 0x0001;

// General purpose flags. The refused ones change the meaning of a record's sizes.
inline constexpr std::uint16_t flag_encrypted = 1u << 0;
inline constexpr std::uint16_t flag_descriptor = 1u << 3;
inline constexpr std::uint16_t flag_patch = 1u << 5;
inline constexpr std::uint16_t flag_strong_encryption = 1u << 6;
inline constexpr std::uint16_t flag_utf8 = 1u << 11;
inline constexpr std::uint16_t flag_masked = 1u << 13;
inline constexpr std::uint16_t refused_flags =
    flag_encrypted | flag_patch | flag_strong_encryption | flag_masked;

}  // namespace weightmap::zip
