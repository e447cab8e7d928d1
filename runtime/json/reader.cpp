#include "runtime/json/reader.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "runtime/bytes/utf8.hpp"

namespace weightmap::json {
namespace {

bool is_surrogate(std::uint32_t code) noexcept { return code >= 0xD800 && code < 0xE000; }

// The length of the character that a text begins with; 0 if it begins with none.
std::size_t character_bytes(std::string_view text) noexcept {
  const auto next = bytes::first_code_point(text);
  return next && !is_surrogate(next->code) ? next->length : 0;
}

}  // namespace

Reader::Next Reader::next() noexcept {
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

bool Reader::too_deep() {
  return fail("nests deeper than " + std::to_string(deepest) + " containers", at_);
}

void Reader::skip_plain_slowly() noexcept {
  while (at_ < text_.size()) {
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"' || c == '\\' || c < 0x20) return;
    const std::size_t length = c < 0x80 ? 1 : character_bytes(text_.substr(at_));
    if (length == 0) return;
    at_ += length;
  }
}

bool Reader::escaped_rest(std::size_t begin, std::string_view& text) {
  decoded_.clear();
  for (;;) {
    decoded_.append(text_, begin, at_ - begin);
    if (at_ == text_.size()) return not_json(at_);
    if (text_[at_] == '"') break;
    if (text_[at_] != '\\') return not_json(at_);
    ++at_;
    if (!add_escape(decoded_)) return false;
    begin = at_;
    skip_plain();
  }
  ++at_;
  text = decoded_;
  return true;
}

// Behind the backslash.
bool Reader::add_escape(std::string& text) {
  constexpr std::string_view letters = "\"\\/bfnrt";
  constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
  const std::size_t begin = at_;
  if (at_ == text_.size()) return not_json(at_);
  if (const std::size_t letter = letters.find(text_[at_]); letter != std::string_view::npos) {
    text += meanings[letter];
    ++at_;
    return true;
  }
  std::uint32_t code = 0;
  if (text_[at_] != 'u') return not_json(at_);
  ++at_;
  if (!hex_digits(code)) return false;
  if (is_surrogate(code)) {
    std::uint32_t low = 0;
    if (code >= 0xDC00 || !text_.substr(at_).starts_with("\\u")) return not_json(begin);
    at_ += 2;
    if (!hex_digits(low)) return false;
    if (low < 0xDC00 || low >= 0xE000) return not_json(begin);
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  char character[4];
  text.append(character, bytes::put_code_point(code, character));
  return true;
}

bool Reader::hex_digits(std::uint32_t& code) {
  for (const std::size_t end = at_ + 4; at_ < end; ++at_) {
    const char c = at(at_);
    const char lower = static_cast<char>(c | 0x20);
    if (is_digit(c))
      code = code << 4 | static_cast<std::uint32_t>(c - '0');
    else if (lower >= 'a' && lower <= 'f')
      code = code << 4 | static_cast<std::uint32_t>(lower - 'a' + 10);
    else
      return not_json(at_);
  }
  return true;
}

// From `token_` on: no number, 20 digits or more, or what is no natural number.
bool Reader::unusual_natural(std::uint64_t& number) {
  at_ = token_;
  if (!is_digit(next_byte())) return fail_expected("a whole number");
  bool is_integer = true;
  if (!scan_number(is_integer)) return false;
  if (!is_integer) {
    at_ = token_;
    return fail_expected("a whole number");
  }
  if (is_digit(next_byte())) return not_json(at_);  // behind a leading zero
  if (std::from_chars(text_.data() + token_, text_.data() + at_, number).ec == std::errc())
    return true;
  return fail("a number is larger than 2^64 - 1", token_);
}

std::size_t Reader::skip_digits() noexcept {
  const std::size_t begin = at_;
  while (is_digit(at(at_))) ++at_;
  return at_ - begin;
}

bool Reader::scan_number(bool& is_integer) {
  if (at(at_) == '-') ++at_;
  const bool is_zero = at(at_) == '0';
  if (is_zero) ++at_;
  if (!is_zero && skip_digits() == 0) return not_json(at_);
  is_integer = true;
  if (at(at_) == '.') {
    is_integer = false;
    ++at_;
    if (skip_digits() == 0) return not_json(at_);
  }
  if (at(at_) == 'e' || at(at_) == 'E') {
    is_integer = false;
    ++at_;
    if (at(at_) == '+' || at(at_) == '-') ++at_;
    if (skip_digits() == 0) return not_json(at_);
  }
  return true;
}

bool Reader::number(std::variant<std::int64_t, double>& number) {
  if (failed_) return false;
  const char first = skip_blanks();
  if (first != '-' && !is_digit(first)) return fail_expected("a number");
  token_ = at_;
  bool is_integer = true;
  if (!scan_number(is_integer)) return false;
  const char* const begin = text_.data() + token_;
  const char* const end = text_.data() + at_;
  if (is_integer) {
    std::int64_t value = 0;
    if (std::from_chars(begin, end, value).ec == std::errc()) {
      number = value;
      return true;
    }
    return fail(
        first == '-' ? "a number is smaller than -2^63" : "a number is larger than 2^63 - 1",
        token_);
  }
  double value = 0;
  if (std::from_chars(begin, end, value).ec != std::errc())
    return fail("a number does not fit a double", token_);
  number = value;
  return true;
}

bool Reader::literal(std::string_view word, const char* expected) {
  if (at(at_) != word.front()) return fail_expected(expected);
  for (std::size_t i = 0; i < word.size(); ++i)
    if (at(at_ + i) != word[i]) return not_json(at_ + i);
  token_ = at_;
  at_ += word.size();
  return true;
}

bool Reader::boolean(bool& value) {
  if (failed_) return false;
  value = skip_blanks() == 't';
  return literal(value ? "true" : "false", "true or false");
}

bool Reader::null() {
  if (failed_) return false;
  skip_blanks();
  return literal("null", "null");
}

bool Reader::end() {
  if (failed_) return false;
  skip_blanks();
  return at_ == text_.size() || not_json(at_);
}

bool Reader::fail(std::string why, std::size_t position) {
  error_ = {ErrorCode::corrupt, std::move(why), position, {}};
  failed_ = true;
  return false;
}

bool Reader::not_json(std::size_t position) {
  return fail("is not JSON", std::min(position, text_.size()));
}

// JSON that is of another kind than the caller knows, or no JSON.
bool Reader::fail_expected(const char* expected) {
  static constexpr const char* kinds[] = {"an object", "an array",  "a string",
                                          "a number",  "a boolean", "null"};
  const Next found = next();
  if (found == Next::other) return not_json(at_);
  return fail(
      std::string("expected ") + expected + ", found " + kinds[static_cast<std::size_t>(found)],
      at_);
}

}  // namespace weightmap::json
