// Characters of UTF-8, in which lone surrogates may stand: Python's "surrogatepass".
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace weightmap::bytes {

struct CodePoint {
  std::uint32_t code;
  std::size_t length;  // in bytes
};

// The first character, or nullopt if the text does not begin with one. Precondition: not empty.
inline std::optional<CodePoint> first_code_point(std::string_view text) noexcept {
  const auto byte_at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte_at(0);
  if (lead < 0x80) return CodePoint{lead, 1};
  const std::size_t length = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (length == 1 || lead > 0xF4 || length > text.size()) return std::nullopt;
  std::uint32_t code = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(i) & 0xC0) != 0x80) return std::nullopt;
    code = code << 6 | (byte_at(i) & 0x3Fu);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < smallest[length] || code > 0x10FFFF) return std::nullopt;
  return CodePoint{code, length};
}

// Where the first byte stands that belongs to no character; text.size() if there is none.
inline std::size_t valid_prefix(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word = 0;
    const std::size_t count = text.size() - at < sizeof word ? text.size() - at : sizeof word;
    if (count == sizeof word)
      std::memcpy(&word, text.data() + at, sizeof word);
    else
      std::memcpy(&word, text.data() + at, count);
    if ((word & 0x8080808080808080) == 0) {
      at += count;
      continue;
    }
    const auto next = first_code_point(text.substr(at));
    if (!next) break;
    at += next->length;
  }
  return at;
}

}  // namespace weightmap::bytes
