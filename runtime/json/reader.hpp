// A strict reader of JSON text (RFC 8259), one token after the other, in the order in which the
// text has them:
//
//   Reader json(text);
//   std::string_view key;
//   if (json.enter_object())
//     while (json.next_key(key)) json.natural(numbers[key]);
//   if (!json.end()) return json.error();
//
// The first call that meets something else than it asks for notes an error; from then on each call
// answers false. The text must be UTF-8 without a byte order mark. Whether an object has a key
// twice is for the caller to see. No recursion, and no allocation but for a string with escapes.
// Not thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "weightmap/result.hpp"

namespace weightmap::json {

class Reader {
 public:
  static constexpr std::uint32_t deepest = 64;  // containers within one another

  // The text must outlive the reader, and what it gives out.
  explicit Reader(std::string_view text) noexcept : text_(text) {}

  enum class Next : std::uint8_t { object, array, string, number, boolean, null, other };
  // What kind of value the next one is, by its first byte; other: none.
  Next next() noexcept;

  bool enter_object() { return enter<'{'>(); }
  bool enter_array() { return enter<'['>(); }
  // The next key of the object that was entered last, and the colon behind it. False at the end of
  // the object, which is left by that, or if something is wrong.
  bool next_key(std::string_view& key) {
    if (!next_item<'}'>()) return false;
    if (next_byte() != '"') return not_json(at_);
    if (!string(key)) return false;
    if (next_byte() != ':' && skip_blanks() != ':') return not_json(at_);
    ++at_;
    return true;
  }
  // Whether the array that was entered last has one more element. False at its end, which leaves
  // it, or if something is wrong.
  bool next_element() { return next_item<']'>(); }

  // A text without escapes is a part of what is read, and valid as long as that; any other only
  // until the next key or string is asked for.
  bool string(std::string_view& text) {
    if (failed_) return false;
    if (next_byte() != '"' && skip_blanks() != '"') return fail_expected("a string");
    token_ = at_++;
    const std::size_t begin = at_;
    skip_plain();
    if (next_byte() != '"') return escaped_rest(begin, text);
    text = text_.substr(begin, at_++ - begin);
    return true;
  }
  // A whole number without sign, fraction or exponent, below 2^64.
  bool natural(std::uint64_t& number) {
    if (failed_) return false;
    if (!is_digit(next_byte())) skip_blanks();
    token_ = at_;
    // No 19 digits are too many for 64 bits.
    constexpr std::size_t few = 19;
    std::uint64_t value = 0;
    for (; is_digit(next_byte()); ++at_)
      value = value * 10 + static_cast<unsigned>(text_[at_] - '0');
    const std::size_t digits = at_ - token_;
    const bool is_plain = digits == 1 || (digits - 1 < few && text_[token_] != '0');
    const char behind = next_byte();
    if (!is_plain || behind == '.' || behind == 'e' || behind == 'E')
      return unusual_natural(number);
    number = value;
    return true;
  }
  // Any number: a double where it has a fraction or an exponent.
  bool number(std::variant<std::int64_t, double>& number);
  bool boolean(bool& value);
  bool null();
  // For a caller who reads a value himself: what is left of the text, and how much of it the value
  // took. It must be one that this reader would have taken.
  std::string_view rest() const noexcept { return text_.substr(at_); }
  void took(std::size_t bytes) noexcept { at_ += bytes; }
  // Nothing but blanks are left. False if not, or if something was wrong before.
  bool end();

  std::string_view text() const noexcept { return text_; }
  bool is_borrowed(std::string_view text) const noexcept {
    return text.data() >= text_.data() && text.data() <= text_.data() + text_.size();
  }
  // Where the token begins that was taken last: a key, a value or the opening of a container.
  std::size_t position() const noexcept { return token_; }
  bool failed() const noexcept { return failed_; }
  // Precondition: failed(). Its file_offset is a position in the text.
  const Error& error() const noexcept { return error_; }
  // Notes what is wrong with a value that the caller does not take. Answers false.
  [[gnu::cold]] bool fail(std::string why, std::size_t position);

 private:
  static constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
  // 0 at the end of the text.
  char next_byte() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }
  char at(std::size_t position) const noexcept {
    return position < text_.size() ? text_[position] : '\0';
  }
  // The first byte that is no blank; 0 at the end of the text.
  char skip_blanks() noexcept {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
    }
    return '\0';
  }
  template <char opening>
  bool enter() {
    if (failed_) return false;
    if (skip_blanks() != opening) return fail_expected(opening == '{' ? "an object" : "an array");
    token_ = at_;
    if (depth_ == deepest) return too_deep();
    ++depth_;
    ++at_;
    is_first_ = true;
    return true;
  }
  template <char closing>
  bool next_item() {
    if (failed_) return false;
    char c = skip_blanks();
    if (c == ',' && !is_first_) {
      ++at_;
      c = skip_blanks();
      return c != closing || not_json(at_);
    }
    if (c != closing) return std::exchange(is_first_, false) || not_json(at_);
    ++at_;
    --depth_;
    is_first_ = false;
    return false;
  }
  // To the quote that ends a string, or to what is no plain character.
  void skip_plain() noexcept {
    std::uint64_t word;
    while (text_.size() - at_ >= sizeof word) {
      std::memcpy(&word, text_.data() + at_, sizeof word);
      if (const std::uint64_t special = special_bytes(word); special != 0) {
        // The lowest is exact.
        if constexpr (std::endian::native == std::endian::little)
          at_ += static_cast<std::size_t>(std::countr_zero(special)) / 8;
        break;
      }
      at_ += sizeof word;
    }
    if (next_byte() != '"') skip_plain_slowly();
  }
  static constexpr std::uint64_t each_byte(unsigned char byte) noexcept {
    return byte * std::uint64_t{0x0101010101010101};
  }
  // Sets the highest bit of each byte that is a quote, a backslash, a control character or not
  // ASCII; of bytes above such a one at times, too.
  static constexpr std::uint64_t special_bytes(std::uint64_t word) noexcept {
    const auto zero = [](std::uint64_t bytes) { return (bytes - each_byte(1)) & ~bytes; };
    const std::uint64_t control = (word - each_byte(0x20)) & ~word;
    return (zero(word ^ each_byte('"')) | zero(word ^ each_byte('\\')) | control | word) &
           each_byte(0x80);
  }
  void skip_plain_slowly() noexcept;
  [[gnu::cold]] bool too_deep();
  [[gnu::cold]] bool unusual_natural(std::uint64_t& number);
  bool escaped_rest(std::size_t begin, std::string_view& text);
  bool add_escape(std::string& text);
  bool hex_digits(std::uint32_t& code);
  bool literal(std::string_view word, const char* expected);
  // Goes over the digits of a number; false if it is none.
  bool scan_number(bool& is_integer);
  std::size_t skip_digits() noexcept;
  [[gnu::cold]] bool fail_expected(const char* expected);
  [[gnu::cold]] bool not_json(std::size_t position);

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t token_ = 0;
  std::uint32_t depth_ = 0;
  bool failed_ = false;
  bool is_first_ = true;  // the container that was entered last has no item so far
  std::string decoded_;   // the last string with escapes
  Error error_;
};

}  // namespace weightmap::json
