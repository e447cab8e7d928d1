#include "runtime/base/json/token_reader.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/json/json_text.hpp"

namespace weightmap::json {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

}  // namespace

TokenReader::Next TokenReader::next() noexcept {
  switch (const char c = skip_blanks()) {
    case '{':
      return Next::object;
    case '[':
      return Next::array;
    case '"':
      return Next::string;
    case 't':
    case 'f':
      return Next::boolean;
    case 'n':
      return Next::null;
    default:
      return c == '-' || is_digit(c) ? Next::number : Next::other;
  }
}

bool TokenReader::too_deep() {
  return fail("nests deeper than " + std::to_string(deepest) + " containers", position());
}

// Handles a string whose bytes from `begin` up to here are literal.
bool TokenReader::unusual_string(const char* begin, std::string_view& text) {
  // A decoded string is no longer than its source, so returned strings never move.
  decoded_.reserve(text_.size());
  const std::size_t first = decoded_.size();
  decoded_.append(begin, at_);
  while (next_byte() != '"') {
    if (at_ == end_) return not_json(at_);
    if (*at_ == '\\') {
      if (!add_escape()) return false;
      continue;
    }
    const auto character = bytes::first_code_point(rest());
    if (!character || character->code < 0x20 || bytes::is_surrogate(character->code))
      return not_json(at_);
    decoded_.append(at_, character->length);
    at_ += character->length;
  }
  ++at_;
  text = std::string_view(decoded_).substr(first);
  return true;
}

bool TokenReader::add_escape() {
  const char* const begin = ++at_;
  const char letter = next_byte();
  if (const std::size_t which = escape_letters.find(letter); which != std::string_view::npos) {
    ++at_;
    decoded_ += escaped_characters[which];
    return true;
  }
  if (letter != 'u') return not_json(begin);
  ++at_;
  std::uint32_t code = 0;
  if (!hex_digits(code)) return false;
  if (bytes::is_surrogate(code)) {
    std::uint32_t low = 0;
    if (code >= 0xDC00 || !rest().starts_with("\\u")) return not_json(begin);
    at_ += 2;
    if (!hex_digits(low)) return false;
    if (low < 0xDC00 || low >= 0xE000) return not_json(begin);
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  char character[4];
  decoded_.append(character, bytes::put_code_point(code, character));
  return true;
}

bool TokenReader::hex_digits(std::uint32_t& code) {
  constexpr std::size_t count = 4;
  const char* const begin = at_;
  at_ = std::from_chars(begin, begin + std::min(count, left()), code, 16).ptr;
  return at_ == begin + count || not_json(at_);
}

bool TokenReader::scan_digits() {
  const char* const begin = at_;
  at_ = std::find_if_not(begin, end_, is_digit);
  return at_ != begin || not_json(at_);
}

// Makes a token of a number.
bool TokenReader::scan_number(bool& is_integer) {
  token_ = at_;
  is_integer = true;
  if (next_byte() == '-') ++at_;
  if (next_byte() == '0')
    ++at_;
  else if (!scan_digits())
    return false;
  if (next_byte() == '.') {
    is_integer = false;
    ++at_;
    if (!scan_digits()) return false;
  }
  if (next_byte() == 'e' || next_byte() == 'E') {
    is_integer = false;
    ++at_;
    if (next_byte() == '+' || next_byte() == '-') ++at_;
    if (!scan_digits()) return false;
  }
  return true;
}

bool TokenReader::natural(std::uint64_t& number) {
  bool is_integer = true;
  if (!is_digit(skip_blanks())) return fail_expected("a whole number");
  if (!scan_number(is_integer)) return false;
  if (is_integer) return convert(number) || fail("a number is larger than 2^64 - 1", position());
  at_ = token_;
  return fail_expected("a whole number");
}

bool TokenReader::number(std::variant<std::int64_t, double>& number) {
  bool is_integer = true;
  if (next() != Next::number) return fail_expected("a number");
  if (!scan_number(is_integer)) return false;
  if (!is_integer)
    return convert(number.emplace<double>()) || fail("a number does not fit a double", position());
  return convert(number.emplace<std::int64_t>()) ||
         fail(
             *token_ == '-' ? "a number is smaller than -2^63" : "a number is larger than 2^63 - 1",
             position());
}

bool TokenReader::literal(std::string_view word, const char* expected) {
  if (skip_blanks() != word.front()) return fail_expected(expected);
  token_ = at_;
  for (const char c : word) {
    if (next_byte() != c) return not_json(at_);
    ++at_;
  }
  return true;
}

bool TokenReader::boolean(bool& value) {
  const bool is_true = skip_blanks() == 't';
  if (!literal(is_true ? "true" : "false", "true or false")) return false;
  value = is_true;
  return true;
}

bool TokenReader::null() { return literal("null", "null"); }

bool TokenReader::end() {
  skip_blanks();
  return !failed() && (at_ == end_ || not_json(at_));
}

bool TokenReader::fail(std::string why, std::size_t position) {
  if (!failed()) error_ = {ErrorCode::corrupt, std::move(why), position, {}};
  // Makes all further reads fail.
  at_ = end_;
  is_first_ = false;
  return false;
}

bool TokenReader::not_json(const char* at) { return fail("is not JSON", offset(at)); }

// Fails for a value of another kind, or for invalid JSON.
bool TokenReader::fail_expected(const char* expected) {
  static constexpr const char* kinds[] = {"an object", "an array",  "a string",
                                          "a number",  "a boolean", "null"};
  const Next found = next();
  if (found == Next::other) return not_json(at_);
  return fail(
      std::string("expected ") + expected + ", found " + kinds[static_cast<std::size_t>(found)],
      offset(at_));
}

}  // namespace weightmap::json
