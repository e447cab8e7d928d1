#include "runtime/bytes/escape.hpp"

#include <cstdint>

namespace weightmap::bytes {
namespace {

struct Character {
  std::size_t length;  // in bytes; 1 for a byte that is not UTF-8
  bool printable;
};

std::uint8_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

std::size_t sequence_length(std::uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 1;
}

// Control characters beyond ASCII, and those that change the order or the lines of what is printed.
bool deceives(std::uint32_t code) {
  return (code >= 0x80 && code < 0xA0) || code == 0x61C || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

bool is_scalar(std::uint32_t code, std::size_t length) {
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code >= smallest[length] && code <= 0x10FFFF && !surrogate;
}

Character first_character(std::string_view text) {
  const std::uint8_t lead = byte_at(text, 0);
  if (lead < 0x80) return {1, lead >= 0x20 && lead != 0x7F && lead != '"' && lead != '\\'};
  const std::size_t length = sequence_length(lead);
  if (length == 1 || length > text.size()) return {1, false};
  std::uint32_t code = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xC0) != 0x80) return {1, false};
    code = code << 6 | (byte_at(text, i) & 0x3Fu);
  }
  if (!is_scalar(code, length)) return {1, false};
  return {length, !deceives(code)};
}

void append_hex(std::string& out, std::string_view text) {
  constexpr char digits[] = "0123456789ABCDEF";
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += "\\x";
    out += digits[byte_at(text, i) >> 4];
    out += digits[byte_at(text, i) & 15];
  }
}

}  // namespace

std::string escape(std::string_view text, std::size_t max_bytes) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const Character next = first_character({text.data() + at, text.size() - at});
    if (next.length > max_bytes - at) return out + "...";
    const std::string_view piece(text.data() + at, next.length);
    if (next.printable)
      out += piece;
    else
      append_hex(out, piece);
    at += next.length;
  }
  return out;
}

std::string quote(std::string_view text, std::size_t max_bytes) {
  return '"' + escape(text, max_bytes) + '"';
}

}  // namespace weightmap::bytes
