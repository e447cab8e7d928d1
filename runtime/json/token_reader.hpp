// A strict reader of JSON text (RFC 8259), one token after the other, in the order in which the
// text has them:
//
//   TokenReader json(text);
//   std::string_view key;
//   if (json.enter_object())
//     while (json.next_key(key)) json.natural(numbers[key]);
//   if (!json.end()) return json.error();
//
// The first call that meets something else than it asks for notes an error; from then on each call
// answers false. The text must be UTF-8 without a byte order mark. Whether an object has a key
// twice is for the caller to see. No recursion. Not thread-safe.
#pragma once

#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "runtime/bytes/little_endian.hpp"
#include "weightmap/result.hpp"

namespace weightmap::json {

class TokenReader {
 public:
  static constexpr std::uint32_t deepest = 64;  // containers within one another

  // The text must outlive the reader, and both the strings that it gives out.
  explicit TokenReader(std::string_view text) noexcept : text_(text) {}
  TokenReader(const TokenReader&) = delete;
  TokenReader& operator=(const TokenReader&) = delete;

  enum class Next : std::uint8_t { object, array, string, number, boolean, null, other };
  // What kind of value the next one is, by its first byte; other: none.
  Next next() noexcept;

  bool enter_object() { return enter('{', "an object"); }
  bool enter_array() { return enter('[', "an array"); }
  // The next key of the object that was entered last, and the colon behind it. False at the end of
  // the object, which is left by that, or if something is wrong.
  bool next_key(std::string_view& key) {
    if (!next_item('}')) return false;
    if (next_byte() != '"') return not_json(at_);
    if (!string(key)) return false;
    if (skip_blanks() != ':') return not_json(at_);
    ++at_;
    return true;
  }
  // Whether the array that was entered last has one more element. False at its end, which leaves
  // it, or if something is wrong.
  bool next_element() { return next_item(']'); }

  bool string(std::string_view& text) {
    if (skip_blanks() != '"') return fail_expected("a string");
    token_ = at_++;
    const char* const begin = at_;
    skip_plain();
    if (next_byte() != '"') return unusual_string(begin, text);
    text = {begin, at_++};
    return true;
  }
  // A whole number without sign, fraction or exponent, below 2^64.
  bool natural(std::uint64_t& number);
  // Any number: a double where it has a fraction or an exponent.
  bool number(std::variant<std::int64_t, double>& number);
  bool boolean(bool& value);
  bool null();
  // For a caller who knows what the text has: what is left of it, and past the first items of the
  // container that was entered last, which must be such as this reader takes.
  std::string_view rest() const noexcept { return {at_, end_}; }
  void skip_items(std::size_t bytes) noexcept {
    at_ += bytes;
    is_first_ = false;
  }
  // Nothing but blanks are left. False if not, or if something was wrong before.
  bool end();

  std::string_view text() const noexcept { return text_; }
  // Where the token begins that was taken last: a key, a value or the opening of a container.
  std::size_t position() const noexcept { return offset(token_); }
  bool failed() const noexcept { return !error_.message.empty(); }
  // Precondition: failed(). Its file_offset is a position in the text.
  const Error& error() const noexcept { return error_; }
  // Notes what is wrong with a value that the caller does not take. Answers false.
  [[gnu::cold]] bool fail(std::string why, std::size_t position);

 private:
  std::size_t offset(const char* at) const noexcept {
    return static_cast<std::size_t>(at - text_.data());
  }
  std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
  // 0, which JSON does not have, at the end of the text.
  char next_byte() const noexcept { return at_ != end_ ? *at_ : '\0'; }
  // The first byte that is no blank.
  char skip_blanks() noexcept {
    for (;; ++at_) {
      const char c = next_byte();
      if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
    }
  }
  // To the quote that ends a string, or to what may not stand for itself.
  void skip_plain() noexcept {
    constexpr std::size_t word_bytes = 8;
    for (; left() >= word_bytes; at_ += word_bytes)
      if (const std::uint64_t special = special_bytes(at_); special != 0) {
        at_ += static_cast<std::size_t>(std::countr_zero(special)) / 8;
        return;
      }
  }
  // Of eight bytes sets the highest bit of each that is a quote, a backslash, a control character
  // or not ASCII; of bytes behind such a one at times, too.
  static std::uint64_t special_bytes(const char* text) noexcept {
    const auto word = bytes::load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(text));
    constexpr std::uint64_t each = 0x0101010101010101;
    const std::uint64_t quotes = (word ^ each * '"') - each;
    const std::uint64_t backslashes = (word ^ each * '\\') - each;
    return (quotes | backslashes | (word - each * 0x20) | word) & each * 0x80;
  }
  bool enter(char opening, const char* expected) {
    if (skip_blanks() != opening) return fail_expected(expected);
    token_ = at_;
    if (depth_ == deepest) return too_deep();
    ++depth_;
    ++at_;
    is_first_ = true;
    return true;
  }
  bool next_item(char closing) {
    const char c = skip_blanks();
    const bool is_first = std::exchange(is_first_, false);
    if (c == closing) {
      ++at_;
      --depth_;
      return false;
    }
    if (is_first) return true;
    if (c != ',') return not_json(at_);
    ++at_;
    return skip_blanks() != closing || not_json(at_);
  }
  [[gnu::cold]] bool too_deep();
  bool unusual_string(const char* begin, std::string_view& text);
  bool add_escape();
  bool hex_digits(std::uint32_t& code);
  bool literal(std::string_view word, const char* expected);
  bool scan_number(bool& is_integer);
  bool scan_digits();
  // The number that was scanned. False if it does not fit.
  template <class Number>
  bool convert(Number& number) const noexcept {
    return std::from_chars(token_, at_, number).ec == std::errc();
  }
  [[gnu::cold]] bool fail_expected(const char* expected);
  [[gnu::cold]] bool not_json(const char* at);

  std::string_view text_;
  const char* at_ = text_.data();
  const char* end_ = at_ + text_.size();
  const char* token_ = at_;
  std::uint32_t depth_ = 0;
  bool is_first_ = false;  // the container that was entered last has no item so far
  std::string decoded_;    // strings that do not stand in the text as they are
  Error error_;
};

}  // namespace weightmap::json
