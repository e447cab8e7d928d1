#include "tools/value_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/cat/elements.hpp"
#include "tools/cat/number_format.hpp"
#include "tools/support/text.hpp"
#include "weightmap/element_format.hpp"
#include "weightmap/value_path.hpp"

namespace weightmap::cli {
namespace {

using Kind = Value::Kind;
using Bytes = std::span<const std::byte>;

constexpr std::size_t most_inline = 16;       // elements
constexpr std::size_t widest_inline = 72;     // bytes of text
constexpr std::size_t deepest_inline = 3;     // containers in one another
constexpr std::size_t longest_integer = 256;  // bytes that are written out as digits

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

// Little-endian two's complement as decimal digits, by long division.
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

// The bytes of a value: as such, or as protocol 2 has them, _codecs.encode(text, "latin1").
std::optional<std::vector<std::byte>> bytes_of(const Value& value) {
  if (const std::optional<Bytes> bytes = value.bytes())
    return std::vector<std::byte>(bytes->begin(), bytes->end());
  if (value.kind() != Kind::object || type_name_of(value) != "bytes") return std::nullopt;
  const Value arguments = value.arguments();
  std::vector<std::byte> bytes;
  if (arguments.size() == 0) return bytes;
  // Latin-1 in UTF-8: one byte, or two of which the first has the two upper bits.
  const std::string_view text = arguments[0].string().value_or("");
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = static_cast<unsigned char>(text[i]);
    if (code >= 0x80 && i + 1 < text.size())
      code = (code & 3) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3F);
    bytes.push_back(static_cast<std::byte>(code));
  }
  return bytes;
}

bool is_global(const Value& value, std::string_view module, std::string_view name) {
  return value.kind() == Kind::global && value.module() == module && value.name() == name;
}

bool is_of_numpy(const Value& value, std::string_view name) {
  return is_global(value, "numpy.core.multiarray", name) ||
         is_global(value, "numpy._core.multiarray", name);
}

bool is_bare(const Value& object) {
  return object.size() == 0 && object.item_count() == 0 && !object.state();
}

bool is_big_endian(const Value& dtype) {
  const std::optional<Value> state = dtype.state();
  return state && state->kind() == Kind::tuple && state->size() > 1 && (*state)[1].string() == ">";
}

void swap_elements(Elements& elements) {
  const auto unit = static_cast<std::ptrdiff_t>(swap_unit(elements.dtype));
  for (auto at = elements.bytes.begin(); at != elements.bytes.end(); at += unit)
    std::reverse(at, at + unit);
}

std::optional<std::string> numpy_scalar(const Value& object) {
  const Value arguments = object.arguments();
  if (!is_of_numpy(object.callable(), "scalar") || arguments.kind() != Kind::tuple ||
      arguments.size() != 2 || !is_bare(object))
    return std::nullopt;
  const std::optional<DType> dtype = numpy_dtype(arguments[0]);
  std::optional<std::vector<std::byte>> bytes = bytes_of(arguments[1]);
  if (!dtype || !bytes || bytes->size() != element_size(*dtype)) return std::nullopt;
  Elements elements{*dtype, std::move(*bytes)};
  if (is_big_endian(arguments[0]) != (std::endian::native == std::endian::big))
    swap_elements(elements);
  return "numpy." + std::string(to_string(*dtype)) + " " + scalar_word(elements);
}

std::optional<std::string> numpy_array(const Value& object) {
  const std::optional<Value> state = object.state();
  if (!is_of_numpy(object.callable(), "_reconstruct") || !state || state->kind() != Kind::tuple ||
      state->size() != 5)
    return std::nullopt;
  const std::optional<std::string> shape = one_line((*state)[1]);
  const std::optional<DType> dtype = numpy_dtype((*state)[2]);
  if (!shape) return std::nullopt;
  return "numpy.ndarray " + (dtype ? std::string(to_string(*dtype)) + " " : std::string()) + *shape;
}

std::string date_text(Bytes date) {
  return fmt::format("{:04}-{:02}-{:02}", at(date, 0) * 256 + at(date, 1), at(date, 2) & 0x7F,
                     at(date, 3));
}

// As datetime.datetime.__reduce__ packs it; a time zone is left to be shown as an argument.
std::optional<std::string> date(const Value& object) {
  const Value callable = object.callable();
  const Value arguments = object.arguments();
  if (callable.kind() != Kind::global || callable.module() != "datetime" || !is_bare(object) ||
      arguments.kind() != Kind::tuple || arguments.size() != 1)
    return std::nullopt;
  const std::optional<std::vector<std::byte>> packed = bytes_of(arguments[0]);
  if (packed && callable.name() == "date" && packed->size() == 4)
    return "datetime.date " + date_text(*packed);
  if (!packed || callable.name() != "datetime" || packed->size() != 10) return std::nullopt;
  const unsigned microseconds = at(*packed, 7) * 65536 + at(*packed, 8) * 256 + at(*packed, 9);
  return fmt::format("datetime.datetime {} {:02}:{:02}:{:02}", date_text(*packed), at(*packed, 4),
                     at(*packed, 5), at(*packed, 6)) +
         (microseconds > 0 ? fmt::format(".{:06}", microseconds) : "");
}

// "builtins." says nothing that a reader does not know.
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

// "1, 2, 3" of elements that fit a line; nullopt if they do not.
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
  for (const auto& known : {numpy_scalar(object), numpy_array(object), date(object)})
    if (known) return known;
  if (const auto bytes = bytes_of(object)) return "bytes of " + std::to_string(bytes->size());
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
    case Kind::byte_array:
      return type_name_of(value) + " of " + std::to_string(value.bytes()->size());
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

std::optional<DType> numpy_dtype(const Value& value) {
  const Value arguments = value.arguments();
  if (!is_global(value.callable(), "numpy", "dtype") || arguments.kind() != Kind::tuple ||
      arguments.size() == 0)
    return std::nullopt;
  const std::optional<std::string_view> name = arguments[0].string();
  for (std::size_t i = 0; name && i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    const ElementFormat& format = element_format(dtype);
    if (format.is_numpy_type() &&
        *name == std::string(1, format.numpy_kind) + std::to_string(element_size(dtype)))
      return dtype;
  }
  return std::nullopt;
}

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
