#include "runtime/json/json_text.hpp"

#include "runtime/bytes/utf8.hpp"

namespace weightmap::json {
namespace {

void append_unit(std::string& out, std::uint32_t unit) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += digits[unit >> shift & 0xF];
}

void append_code(std::string& out, std::uint32_t code) {
  if (code < 0x10000) return append_unit(out, code);
  append_unit(out, 0xD800 + ((code - 0x10000) >> 10));
  append_unit(out, 0xDC00 + (code & 0x3FF));
}

// The letter behind the backslash; 0 for a character that has none.
char short_escape(std::uint32_t code) noexcept {
  switch (code) {
    case '"':
    case '\\':
      return static_cast<char>(code);
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return '\0';
  }
}

}  // namespace

void append_string(std::string& out, std::string_view text, BeyondAscii beyond_ascii) {
  out += '"';
  while (!text.empty()) {
    const auto next = bytes::first_code_point(text);
    if (!next) break;
    const bool is_escaped =
        next->code < 0x20 || (next->code > 0x7E && beyond_ascii == BeyondAscii::escaped);
    if (const char letter = short_escape(next->code); letter != '\0')
      (out += '\\') += letter;
    else if (is_escaped)
      append_code(out, next->code);
    else
      out += text.substr(0, next->length);
    text.remove_prefix(next->length);
  }
  out += '"';
}

}  // namespace weightmap::json
