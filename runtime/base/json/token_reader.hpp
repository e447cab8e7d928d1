// A strict pull parser of JSON text (RFC 8259), which reads tokens in the order of the text:
//
//   TokenReader json(text);
//   std::string_view key;
//   if (json.enter_object())
//     while (json.next_key(key)) json.natural(numbers[key]);
//   if (!json.end()) return json.error();
//
// The first call that meets an unexpected token sets an error; from then on each call returns
// false. The text must be UTF-8 without a byte order mark. The caller checks for repeated keys. No
// recursion. Not thread-safe.
#pragma once

#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "runtime/base/bytes/little_endian.hpp"
#include "weightmap/result.hpp"

namespace weightmap::json {

class TokenReader {
 public:
  static constexpr std::uint32_t deepest = 64;  // nesting of containers

  // The text must outlive the reader, and both must outlive the returned strings.
  explicit TokenReader(std::string_view text) noexcept : text_(text) {}
  TokenReader(const TokenReader&) = delete;
  TokenReader& operator=(const TokenReader&) = delete;

  enum class Next : std::uint8_t { object, array, string, number, boolean, null, other };
  // Returns the kind of the next value by its first byte; other if it is none.
  Next next() noexcept;

  bool enter_object() { return enter('{', "an object"); }
  bool enter_array() { return enter('[', "an array"); }
  // Reads the next key of the current object and its colon. Returns false at the end of the object,
  // which it leaves, or after an error.
  bool next_key(std::string_view& key) {
    if (!next_item('}')) return false;
    if (next_byte() != '"') return not_json(at_);
    if (!string(key)) return false;
    if (skip_blanks() != ':') return not_json(at_);
    ++at_;
    return true;
  }
  // Returns true if the current array has another element; false at its end, which it leaves, or on
  // error.
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
  // Reads a whole number without sign, fraction or exponent, below 2^64.
  bool natural(std::uint64_t& number);
  // Reads any number: a double if it has a fraction or an exponent.
  bool number(std::variant<std::int64_t, double>& number);
  bool boolean(bool& value);
  bool null();
  // For a caller that knows the text: its rest, and a way to skip the first items of the current
  // container, which must be valid for this reader.
  std::string_view rest() const noexcept { return {at_, end_}; }
  void skip_items(std::size_t bytes) noexcept {
    at_ += bytes;
    is_first_ = false;
  }
  // Returns true if only whitespace is left and there was no error.
  bool end();

  std::string_view text() const noexcept { return text_; }
  // The position of the last token: a key, a value or the opening of a container.
  std::size_t position() const noexcept { return offset(token_); }
  bool failed() const noexcept { return !error_.message.empty(); }
  // Precondition: failed(). Its file_offset is a position in the text.
  const Error& error() const noexcept { return error_; }
  // Sets the error for a value that the caller refuses. Returns false.
  [[gnu::cold]] bool fail(std::string why, std::size_t position);

 private:
  std::size_t offset(const char* at) const noexcept {
    return static_cast<std::size_t>(at - text_.data());
  }
  std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
  // Returns 0, which JSON does not contain, at the end of the text.
  char next_byte() const noexcept { return at_ != end_ ? *at_ : '\0'; }
  // Returns the first byte that is not whitespace.
  char skip_blanks() noexcept {
    for (;; ++at_) {
      const char c = next_byte();
      if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
    }
  }
  // Skips to the closing quote of a string, or to a byte that is not literal.
  void skip_plain() noexcept {
    constexpr std::size_t word_bytes = 8;
    for (; left() >= word_bytes; at_ += word_bytes)
      if (const std::uint64_t special = special_bytes(at_); special != 0) {
        at_ += static_cast<std::size_t>(std::countr_zero(special)) / 8;
        return;
      }
  }
  // Sets the highest bit for each of eight bytes that is a quote, a backslash, a control character
  // or not ASCII; possibly also for bytes behind such a one.
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
  // Converts the scanned number. Returns false if it does not fit.
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
  bool is_first_ = false;  // the current container has no item so far
  std::string decoded_;    // strings with escapes
  Error error_;
};

}  // namespace weightmap::json
