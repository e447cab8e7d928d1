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
// twice is for the caller to see. No recursion, and no allocation but for strings with escapes.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <string>
#include <string_view>
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

  bool enter_object() { return enter('{', "an object"); }
  bool enter_array() { return enter('[', "an array"); }
  // The next key of the object that was entered last, and the colon behind it. False at the end of
  // the object, which is left by that, or if something is wrong.
  bool next_key(std::string_view& key);
  // Whether the array that was entered last has one more element. False at its end, which leaves
  // it, or if something is wrong.
  bool next_element() { return next_item(']'); }

  // Texts are valid as long as this reader and what it reads.
  bool string(std::string_view& text);
  // A whole number without sign, fraction or exponent, below 2^64.
  bool natural(std::uint64_t& number);
  // Any number: a double where it has a fraction or an exponent.
  bool number(std::variant<std::int64_t, double>& number);
  bool boolean(bool& value);
  bool null();
  // Nothing but blanks are left. False if not, or if something was wrong before.
  bool end();

  std::string_view text() const noexcept { return text_; }
  // Where the token begins that was taken last: a key, a value or the opening of a container.
  std::size_t position() const noexcept { return token_; }
  bool failed() const noexcept { return !error_.message.empty(); }
  // Precondition: failed(). Its file_offset is a position in the text.
  const Error& error() const noexcept { return error_; }
  // Notes what is wrong with a value that the caller does not take. Answers false.
  [[gnu::cold]] bool fail(std::string why, std::size_t position);

 private:
  bool enter(char opening, const char* expected);
  bool next_item(char closing);
  // The first byte that is no blank; 0 at the end of the text.
  char skip_blanks() noexcept;
  char at(std::size_t position) const noexcept {
    return position < text_.size() ? text_[position] : '\0';
  }
  // From `at_` to the quote that ends it, or to what is no plain character.
  void skip_plain() noexcept;
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
  bool is_first_ = true;  // the container that was entered last has no item so far
  std::forward_list<std::string> decoded_;  // strings with escapes
  Error error_;
};

}  // namespace weightmap::json
