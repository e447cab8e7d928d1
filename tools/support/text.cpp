#include "tools/support/text.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>

namespace weightmap::cli {
namespace {

struct CodePoint {
  char32_t value;
  std::size_t bytes;  // 0: not UTF-8
};

// Decodes the code point at the front of a non-empty text. Refuses surrogates and overlong forms.
CodePoint front(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 0;
  if (length == 0 || lead > 0xF4 || text.size() < length) return {0, 0};
  char32_t value = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0, 0};
    value = (value << 6) | (byte(i) & 0x3Fu);
  }
  constexpr std::array<char32_t, 5> smallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < smallest[length] || surrogate || value > 0x10FFFF) return {0, 0};
  return {value, length};
}

// True for control characters (C0, DEL, C1), line and paragraph separators, marks that change the
// direction of writing, and what no XML may have (U+FFFE, U+FFFF).
bool moves_the_cursor(char32_t c) noexcept {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || (c >= 0x200E && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF ||
         c == 0xFFFE || c == 0xFFFF;
}

// True for East Asian scripts and pictographs, which take two columns of a terminal.
bool is_wide(char32_t c) noexcept {
  return (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
         (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0xFF00 && c <= 0xFF60) || (c >= 0x1F300 && c <= 0x1FAFF) ||
         (c >= 0x20000 && c <= 0x3FFFD);
}

void append_hex(std::string& out, std::string_view bytes) {
  for (char c : bytes)
    fmt::format_to(std::back_inserter(out), "\\x{:02X}", static_cast<unsigned char>(c));
}

}  // namespace

std::string printable(std::string_view text) {
  // Quotes make empty names and outer spaces visible.
  const bool quoted = text.empty() || text.front() == ' ' || text.back() == ' ';
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = front(text);
    const std::size_t length = std::max<std::size_t>(c.bytes, 1);
    if (c.value == U'\\')
      out += "\\\\";
    else if (c.bytes == 0 || moves_the_cursor(c.value))
      append_hex(out, text.substr(0, length));
    else
      out += text.substr(0, length);
    text.remove_prefix(length);
  }
  return quoted ? "\"" + out + "\"" : out;
}

std::size_t width(std::string_view text) noexcept {
  std::size_t cells = 0;
  while (!text.empty()) {
    const CodePoint c = front(text);
    cells += is_wide(c.value) ? 2 : 1;
    text.remove_prefix(std::max<std::size_t>(c.bytes, 1));
  }
  return cells;
}

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  constexpr std::array<const char*, 6> units = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.95 would be printed as 1024.0.
  for (; value >= 1023.95 && unit + 1 < units.size(); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string count(std::uint64_t number, std::string_view noun) {
  return std::to_string(number) + " " + std::string(noun) + (number == 1 ? "" : "s");
}

std::string dims(std::span<const std::int64_t> values) {
  std::string out = "[";
  for (std::int64_t value : values) {
    if (out.size() > 1) out += ", ";
    out += std::to_string(value);
  }
  return out + "]";
}

std::string joined_words(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

}  // namespace weightmap::cli
