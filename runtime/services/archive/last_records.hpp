// The records that an ArchiveWriter adds at the end, for plans of an archive.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace weightmap {

// Returns the name of the version record.
inline std::string_view version_name(std::uint64_t version) noexcept {
  return version < 6 ? "version" : ".data/version";
}
inline std::string version_text(std::uint64_t version) { return std::to_string(version) + "\n"; }

// Content of the record byteorder.
inline constexpr std::string_view native_byte_order =
    std::endian::native == std::endian::little ? "little" : "big";

}  // namespace weightmap
