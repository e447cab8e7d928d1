#include "tools/values/value_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "tools/cat/number_format.hpp"
#include "tools/support/text.hpp"
#include "tools/values/numpy_value.hpp"

namespace weightmap::cli {
namespace {

using Kind = Value::Kind;
using Bytes = std::span<const std::byte>;

constexpr std::size_t most_inline = 16;       // elements
constexpr std::size_t widest_inline = 72;     // bytes of text
constexpr std::size_t deepest_inline = 3;     // nesting of containers
constexpr std::size_t longest_integer = 256;  // in bytes

unsigned at(Bytes bytes, std::size_t index) { return std::to_integer<unsigned>(bytes[index]); }

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string cut(std::string_view text, std::size_t longest) {
  if (text.size() <= longest) return "'" + printable(text) + "'";
  return "'" + printable(text.substr(0, longest)) + "'... (" + std::to_string(text.size()) +
         " bytes)";
}

// Returns Python's form: b'ab\\x00', cut like a text.
std::string bytes_text(Bytes bytes, std::size_t longest) {
  std::string text = "b'";
  for (const std::byte byte : bytes.first(std::min(bytes.size(), longest))) {
    const auto code = std::to_integer<unsigned char>(byte);
    if (code == '\'' || code == '\\')
      text += fmt::format("\\{:c}", static_cast<char>(code));
    else
      text += code < 0x20 || code >= 0x7F ? fmt::format("\\x{:02x}", code)
                                          : std::string(1, static_cast<char>(code));
  }
  text += "'";
  return bytes.size() > longest ? text + "... (" + std::to_string(bytes.size()) + " bytes)" : text;
}

// Converts little-endian two's complement to decimal digits, by long division.
std::string big_integer_text(Bytes number) {
  if (number.size() > longest_integer)
    return "an integer of " + std::to_string(number.size()) + " bytes";
  const bool negative = !number.empty() && (at(number, number.size() - 1) & 0x80) != 0;
  std::vector<unsigned> left;  // magnitude, most significant byte first
  unsigned carry = negative ? 1 : 0;
  for (std::size_t i = 0; i < number.size(); ++i) {
    const unsigned byte = (negative ? ~at(number, i) & 0xFF : at(number, i)) + carry;
    left.insert(left.begin(), byte & 0xFF);
    carry = byte >> 8;
  }
  if (carry != 0) left.insert(left.begin(), carry);
  std::string digits;
  while (std::any_of(left.begin(), left.end(), [](unsigned byte) { return byte != 0; })) {
    unsigned rest = 0;
    for (unsigned& byte : left) {
      const unsigned value = rest * 256 + byte;
      byte = value / 10;
      rest = value % 10;
    }
    digits.insert(digits.begin(), static_cast<char>('0' + rest));
  }
  return (negative ? "-" : "") + (digits.empty() ? "0" : digits);
}

bool is_bare(const Value& object) {
  return object.size() == 0 && object.item_count() == 0 && !object.state();
}

std::optional<std::string> numpy_line(const Value& object) {
  if (const std::optional<NumpyValue> scalar = numpy_scalar(object))
    return scalar->type_name() + " " + scalar_word(scalar->elements);
  const std::optional<NumpyParts> array = numpy_array_parts(object);
  const std::optional<std::string> shape = array ? one_line(array->shape) : std::nullopt;
  if (!shape) return std::nullopt;
  const std::optional<DType> dtype = numpy_dtype(array->dtype);
  return "numpy.ndarray " + (dtype ? std::string(to_string(*dtype)) + " " : std::string()) + *shape;
}

std::string date_text(Bytes date) {
  return fmt::format("{:04}-{:02}-{:02}", at(date, 0) * 256 + at(date, 1), at(date, 2) & 0x7F,
                     at(date, 3));
}

// Decodes the form of datetime.datetime.__reduce__; a time zone is shown as an argument.
std::optional<std::string> date(const Value& object) {
  const Value callable = object.callable();
  const Value arguments = object.arguments();
  if (callable.kind() != Kind::global || callable.module() != "datetime" || !is_bare(object) ||
      arguments.kind() != Kind::tuple || arguments.size() != 1)
    return std::nullopt;
  const std::optional<Bytes> packed = arguments[0].bytes();
  if (packed && callable.name() == "date" && packed->size() == 4)
    return "datetime.date " + date_text(*packed);
  if (!packed || callable.name() != "datetime" || packed->size() != 10) return std::nullopt;
  const unsigned microseconds = at(*packed, 7) * 65536 + at(*packed, 8) * 256 + at(*packed, 9);
  return fmt::format("datetime.datetime {} {:02}:{:02}:{:02}", date_text(*packed), at(*packed, 4),
                     at(*packed, 5), at(*packed, 6)) +
         (microseconds > 0 ? fmt::format(".{:06}", microseconds) : "");
}

// Omits "builtins.".
std::string short_type_name(const Value& value) {
  constexpr std::size_t longest_name = 200;
  std::string name = type_name_of(value);
  if (name.size() > longest_name) name.replace(longest_name, std::string::npos, "...");
  name = printable(name);
  for (const std::string_view prefix : {"builtins.", "__builtin__."})
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  return name;
}

std::optional<std::string> line_of(const Value& value, std::size_t longest, std::size_t deepest);

// Returns "1, 2, 3" for elements that fit one line; nullopt otherwise.
std::optional<std::string> joined(const Value& container, std::size_t deepest) {
  if (container.size() > most_inline || deepest == 0) return std::nullopt;
  std::string text;
  for (const Value& element : container.elements()) {
    const std::optional<std::string> word = line_of(element, widest_inline, deepest - 1);
    if (!word) return std::nullopt;
    text += (text.empty() ? "" : ", ") + *word;
    if (text.size() > widest_inline) return std::nullopt;
  }
  return text;
}

std::optional<std::string> sequence(const Value& container, const char* open, const char* close,
                                    std::size_t deepest) {
  const std::optional<std::string> words = joined(container, deepest);
  if (!words) return std::nullopt;
  return open + *words + close;
}

std::optional<std::string> object_line(const Value& object, std::size_t deepest) {
  for (const auto& known : {numpy_line(object), date(object)})
    if (known) return known;
  const Value arguments = object.arguments();
  if (!is_bare(object) || arguments.kind() != Kind::tuple) return std::nullopt;
  const std::optional<std::string> words = joined(arguments, deepest);
  if (!words) return std::nullopt;
  return short_type_name(object) + "(" + *words + ")";
}

std::optional<std::string> line_of(const Value& value, std::size_t longest, std::size_t deepest) {
  switch (value.kind()) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return *value.boolean() ? "True" : "False";
    case Kind::integer:
      return std::to_string(*value.integer());
    case Kind::big_integer:
      return big_integer_text(*value.big_integer());
    case Kind::real:
      return real_text(*value.real());
    case Kind::string:
      return cut(*value.string(), longest);
    case Kind::bytes:
      return bytes_text(*value.bytes(), longest);
    case Kind::byte_array:
      return "bytearray(" + bytes_text(*value.bytes(), longest) + ")";
    case Kind::global:
      return short_type_name(value);
    case Kind::persistent_id:
      return "a storage";
    case Kind::list:
      return sequence(value, "[", "]", deepest);
    case Kind::tuple:
      return sequence(value, "(", value.size() == 1 ? ",)" : ")", deepest);
    case Kind::set:
      return sequence(value, value.size() > 0 ? "{" : "set(", value.size() > 0 ? "}" : ")",
                      deepest);
    case Kind::frozen_set:
      return sequence(value, "frozenset({", "})", deepest);
    case Kind::dict:
      return value.item_count() == 0 ? std::optional<std::string>("{}") : std::nullopt;
    case Kind::object:
      return object_line(value, deepest);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> one_line(const Value& value, std::size_t longest) {
  return line_of(value, longest, deepest_inline);
}

std::string head_of(const Value& value) {
  std::string text = short_type_name(value);
  if (value.size() > 0) text += ", " + count(value.size(), "element");
  if (value.item_count() > 0) text += ", " + count(value.item_count(), "item");
  if (const std::optional<Value> state = value.state(); state && state->kind() == Kind::dict)
    text += ", " + count(state->item_count(), "attribute");
  return text;
}

std::string key_text(const Value& key, std::size_t longest) {
  if (const std::optional<std::string_view> text = key.string())
    return printable(text->substr(0, longest)) + (text->size() > longest ? "..." : "");
  return one_line(key).value_or(short_type_name(key));
}

}  // namespace weightmap::cli
