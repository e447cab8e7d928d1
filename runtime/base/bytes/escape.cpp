#include "runtime/base/bytes/escape.hpp"

#include <cstdint>
#include <optional>

#include "runtime/base/bytes/utf8.hpp"

namespace weightmap::bytes {
namespace {

struct Character {
  std::size_t length;  // in bytes; 1 for a byte that is not UTF-8
  bool printable;
};

std::uint8_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

// Control characters beyond ASCII, and characters that change the order or the lines of the output.
bool deceives(std::uint32_t code) {
  return (code >= 0x80 && code < 0xA0) || code == 0x61C || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

Character first_character(std::string_view text) {
  const std::optional<CodePoint> first = first_code_point(text);
  if (!first) return {1, false};
  const std::uint32_t code = first->code;
  if (is_surrogate(code)) return {1, false};
  if (first->length > 1) return {first->length, !deceives(code)};
  return {1, code >= 0x20 && code != 0x7F && code != '"' && code != '\\'};
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
