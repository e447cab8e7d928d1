// Base64 (RFC 4648, section 4), as HTTP headers and JSON carry bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weightmap::bytes {

// Of whole groups of four with their padding; nullopt for any other text. Inline, for remote/.
inline std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return std::nullopt;
  for (int most = 2; most > 0 && text.ends_with('='); --most) text.remove_suffix(1);
  std::string decoded;
  decoded.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t six = digits.find(text[i]);
    if (six == digits.npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(six);
    // After i + 1 digits so many whole bytes are there.
    if (6 * (i + 1) / 8 != 6 * i / 8) decoded += static_cast<char>(bits >> (6 * (i + 1) % 8) & 255);
  }
  return decoded;
}

}  // namespace weightmap::bytes
