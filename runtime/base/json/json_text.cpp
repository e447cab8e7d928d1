#include "runtime/base/json/json_text.hpp"

#include <algorithm>

#include "runtime/base/bytes/utf8.hpp"

namespace weightmap::json {
namespace {

bool is_plain(char c) { return c >= 0x20 && c <= 0x7E && c != '"' && c != '\\'; }

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

}  // namespace

void append_string(std::string& out, std::string_view text, BeyondAscii beyond_ascii) {
  out += '"';
  for (;;) {
    const char* const special = std::find_if_not(text.begin(), text.end(), is_plain);
    out.append(text.begin(), special);
    text.remove_prefix(static_cast<std::size_t>(special - text.begin()));
    if (text.empty()) break;
    const auto next = bytes::first_code_point(text);
    if (!next) break;
    const std::size_t number = escaped_characters.find(text[0]);
    if (number != std::string_view::npos)
      (out += '\\') += escape_letters[number];
    else if (next->code < 0x20 || (next->code > 0x7E && beyond_ascii == BeyondAscii::escaped))
      append_code(out, next->code);
    else
      out += text.substr(0, next->length);
    text.remove_prefix(next->length);
  }
  out += '"';
}

}  // namespace weightmap::json
