#include "runtime/base/name_pattern.hpp"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <system_error>

namespace weightmap {
namespace {

using Bytes = std::bitset<256>;

// Decodes "xHH" into a byte.
std::optional<std::uint8_t> hex_escape(std::string_view text) noexcept {
  if (text.size() < 3 || text[0] != 'x') return std::nullopt;
  std::uint8_t byte = 0;
  const char* const end = text.data() + 3;
  const auto [stop, error] = std::from_chars(text.data() + 1, end, byte, 16);
  return error == std::errc() && stop == end ? std::optional(byte) : std::nullopt;
}

// Takes one byte, possibly escaped, from the front. Precondition: the text is not empty.
std::uint8_t take_byte(std::string_view& text) noexcept {
  const bool is_escaped = text.front() == '\\' && text.size() > 1;
  if (is_escaped) text.remove_prefix(1);
  const std::optional<std::uint8_t> hex = is_escaped ? hex_escape(text) : std::nullopt;
  const std::uint8_t byte = hex ? *hex : static_cast<std::uint8_t>(text.front());
  text.remove_prefix(hex ? 3 : 1);
  return byte;
}

// Takes one byte or range of a set.
void take_range(std::string_view& text, Bytes& bytes) noexcept {
  const std::uint8_t first = take_byte(text);
  std::uint8_t last = first;
  if (text.size() > 1 && text[0] == '-' && text[1] != ']') {
    text.remove_prefix(1);
    last = take_byte(text);
  }
  for (unsigned byte = first; byte <= last; ++byte) bytes.set(byte);
}

// Takes "[...]" from the front; nullopt if there is no closing "]".
std::optional<Bytes> take_set(std::string_view& text) noexcept {
  std::string_view rest = text.substr(1);
  const bool is_negated = rest.starts_with('!') || rest.starts_with('^');
  if (is_negated) rest.remove_prefix(1);
  Bytes bytes;
  for (bool is_first = true; !rest.empty() && (is_first || rest.front() != ']'); is_first = false)
    take_range(rest, bytes);
  if (rest.empty()) return std::nullopt;
  text = rest.substr(1);
  return is_negated ? ~bytes : bytes;
}

}  // namespace

NamePattern::NamePattern(std::string_view text) {
  bool sets_end = true;  // if a set is not closed, no later one is
  while (!text.empty() && text != "\\") {
    const char front = text.front();
    std::optional<Bytes> set;
    if (front == '[' && sets_end) {
      set = take_set(text);
      sets_end = set.has_value();
    }
    if (front == '*' || front == '?') {
      text.remove_prefix(1);
      set = ~Bytes();
    }
    has_wildcards_ = has_wildcards_ || set;
    if (set) {
      parts_.push_back({*set, front == '*'});
    } else {
      const std::uint8_t byte = take_byte(text);
      parts_.push_back({Bytes().set(byte), false});
      name_.push_back(static_cast<char>(byte));
    }
  }
  if (!has_wildcards_) parts_.clear();
}

// After a mismatch only the last run needs to take one more byte: the last run can take every byte
// that an earlier one could.
bool NamePattern::matches(std::string_view name) const noexcept {
  if (!has_wildcards_) return name == name_;
  std::size_t part = 0;
  std::size_t at = 0;
  std::optional<std::size_t> after_run;
  std::size_t run_end = 0;
  while (at < name.size()) {
    if (part < parts_.size() && parts_[part].is_run) {
      after_run = ++part;
      run_end = at;
    } else if (part < parts_.size() && parts_[part].bytes[static_cast<std::uint8_t>(name[at])]) {
      ++part;
      ++at;
    } else if (after_run) {
      part = *after_run;
      at = ++run_end;
    } else {
      return false;
    }
  }
  while (part < parts_.size() && parts_[part].is_run) ++part;
  return part == parts_.size();
}

}  // namespace weightmap
