// Characters of UTF-8, including lone surrogates: Python's "surrogatepass".
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

constexpr bool is_surrogate(std::uint32_t code) noexcept { return code >= 0xD800 && code < 0xE000; }

// Returns the first character; nullopt if it is invalid. Precondition: not empty.
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

// Returns how many bytes at the beginning are ASCII, rounded down to words unless fewer are left.
inline std::size_t ascii_prefix(std::string_view text) noexcept {
  std::size_t at = 0;
  for (std::uint64_t word = 0; text.size() - at >= sizeof word; at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if ((word & 0x8080808080808080) != 0) return at;
  }
  while (at < text.size() && (text[at] & 0x80) == 0) ++at;
  return at;
}

// Returns the position of the first byte outside any character; otherwise text.size().
inline std::size_t valid_prefix(std::string_view text, bool surrogates_are_valid = true) noexcept {
  for (std::size_t at = 0;;) {
    at += ascii_prefix(text.substr(at));
    if (at == text.size()) return at;
    const auto next = first_code_point(text.substr(at));
    if (!next || (is_surrogate(next->code) && !surrogates_are_valid)) return at;
    at += next->length;
  }
}

// True for standard UTF-8, without surrogates.
inline bool is_utf8(std::string_view text) noexcept {
  return valid_prefix(text, false) == text.size();
}

// Writes a character in at most four bytes and returns their number.
inline std::size_t put_code_point(std::uint32_t code, char* out) noexcept {
  const auto rest = [code](unsigned shift) {
    return static_cast<char>(0x80 | (code >> shift & 0x3F));
  };
  if (code < 0x80) {
    out[0] = static_cast<char>(code);
    return 1;
  }
  if (code < 0x800) {
    out[0] = static_cast<char>(0xC0 | code >> 6);
    out[1] = rest(0);
    return 2;
  }
  if (code < 0x10000) {
    out[0] = static_cast<char>(0xE0 | code >> 12);
    out[1] = rest(6);
    out[2] = rest(0);
    return 3;
  }
  out[0] = static_cast<char>(0xF0 | code >> 18);
  out[1] = rest(12);
  out[2] = rest(6);
  out[3] = rest(0);
  return 4;
}

}  // namespace weightmap::bytes
