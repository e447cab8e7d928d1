// The central directory's facts about one record of the archive.
#pragma once

#include <cstdint>
#include <string_view>

namespace weightmap::zip {

// `unread`: encrypted, or of another method; only a directory read with Refusals::structure has it.
enum class Method : std::uint8_t { stored = 0, deflated = 8, unread = 255 };

struct Record {
  std::uint64_t header_offset;  // absolute, including bytes before the archive
  std::uint64_t stored_size;
  std::uint64_t size;
  const char* name;  // with the archive's top folder; not terminated
  std::uint32_t crc32;
  std::uint16_t name_length;
  Method method;
  bool has_descriptor;  // sizes and CRC are behind the payload, not in the local header

  std::string_view full_name() const noexcept { return {name, name_length}; }
};

}  // namespace weightmap::zip
