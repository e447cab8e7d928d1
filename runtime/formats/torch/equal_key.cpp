#include "runtime/formats/torch/equal_key.hpp"

#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "runtime/base/bytes/escape.hpp"

namespace weightmap::torch {
namespace {

using value::Cell;

constexpr std::string_view twice =
    " is in one dict twice; readers differ in which of the two values they show";

// Returns nullopt if the float has a fraction or leaves 64 bits.
std::optional<std::int64_t> integral(double value) noexcept {
  constexpr double limit = 9223372036854775808.0;  // 2^63
  if (!(value >= -limit && value < limit) || std::trunc(value) != value) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::string describe(const value::Tree& tree, const Cell& key) {
  switch (value::kind_of(key)) {
    case Value::Kind::none:
      return "None";
    case Value::Kind::boolean:
      return key.payload != 0 ? "True" : "False";
    case Value::Kind::integer:
      return std::to_string(static_cast<std::int64_t>(key.payload));
    case Value::Kind::real: {
      char digits[32];
      const auto end =
          std::to_chars(digits, digits + sizeof digits, std::bit_cast<double>(key.payload));
      return {digits, end.ptr};
    }
    case Value::Kind::big_integer:
      return "that is an integer of " + std::to_string(key.count) + " bytes";
    default:
      return bytes::quote(tree.text(key.payload, key.count));
  }
}

}  // namespace

EqualKey::EqualKey(const value::Tree& tree, const Cell& key) noexcept : cell_(key) {
  switch (value::kind_of(key)) {
    case Value::Kind::none:
      group_ = Group::none;
      break;
    case Value::Kind::boolean:
    case Value::Kind::integer:
      group_ = Group::integer;
      bits_ = key.payload;
      break;
    case Value::Kind::real: {
      const auto number = std::bit_cast<double>(key.payload);
      if (std::isnan(number)) break;
      const auto whole = integral(number);
      group_ = whole ? Group::integer : Group::real;
      bits_ = whole ? static_cast<std::uint64_t>(*whole) : key.payload;
      break;
    }
    case Value::Kind::big_integer:
      group_ = Group::big_integer;  // in a parsed tree, an integer that fits 64 bits is never of
                                    // this kind
      text_ = tree.text(key.payload, key.count);
      break;
    case Value::Kind::string:
      group_ = Group::string;
      text_ = tree.text(key.payload, key.count);
      break;
    case Value::Kind::bytes:
      group_ = Group::bytes;
      text_ = tree.text(key.payload, key.count);
      break;
    default:
      break;
  }
}

std::strong_ordering operator<=>(const EqualKey& a, const EqualKey& b) noexcept {
  if (a.group_ != b.group_) return a.group_ <=> b.group_;
  if (a.bits_ != b.bits_)
    return static_cast<std::int64_t>(a.bits_) <=> static_cast<std::int64_t>(b.bits_);
  if (a.text_.size() != b.text_.size()) return a.text_.size() <=> b.text_.size();
  if (a.text_.data() == b.text_.data()) return std::strong_ordering::equal;
  return a.text_ <=> b.text_;
}

Error key_twice(const value::Tree& tree, const Cell& key, std::uint64_t pickle_offset) {
  const bool has_place =
      value::kind_of(key) == Value::Kind::string && tree.is_in_pickle(key.payload);
  return {ErrorCode::corrupt,
          "the key " + describe(tree, key) + std::string(twice),
          pickle_offset + (has_place ? key.payload : 0),
          {}};
}

bool is_key_twice(const Error& error) noexcept {
  return error.code == ErrorCode::corrupt && error.message.ends_with(twice);
}

}  // namespace weightmap::torch
