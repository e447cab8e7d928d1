#include "runtime/bytes/escape.hpp"

#include <algorithm>
#include <cstdint>

#include "runtime/bytes/utf8.hpp"

namespace weightmap::bytes {
namespace {

// Control characters, and those that change the order or the lines of what is printed.
bool deceives(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x61C || code == 0x200E ||
         code == 0x200F || (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

bool is_printable(const Character& character) {
  return character.length > 0 && character.code != '"' && character.code != '\\' &&
         !deceives(character.code);
}

void append_hex(std::string& out, std::string_view text) {
  constexpr char digits[] = "0123456789ABCDEF";
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    out += "\\x";
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
}

}  // namespace

std::string escape(std::string_view text, std::size_t max_bytes) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const Character next = first_character(text.substr(at));
    const std::size_t length = std::max<std::size_t>(next.length, 1);
    if (length > max_bytes - at) return out + "...";
    const std::string_view piece = text.substr(at, length);
    if (is_printable(next))
      out += piece;
    else
      append_hex(out, piece);
    at += length;
  }
  return out;
}

std::string quote(std::string_view text, std::size_t max_bytes) {
  return '"' + escape(text, max_bytes) + '"';
}

}  // namespace weightmap::bytes
