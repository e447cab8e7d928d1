// Bytes and bytearrays of the protocols that have no opcode for them.
//
// Protocols 0 to 2 pickle bytes as _codecs.encode(text, "latin1"), and none as bytes(); a bytearray
// is a call up to protocol 4. Such a call becomes the value, so that all that is made of it follows
// from one form.
#include <cstring>
#include <string_view>

#include "runtime/base/pickle/machine.hpp"
#include "runtime/base/value/build.hpp"

namespace weightmap::pickle {
namespace {

using enum Value::Kind;

bool is_builtin(const value::Global& function, std::string_view name) noexcept {
  return function.name == name &&
         (function.module == "builtins" || function.module == "__builtin__");
}

// Decodes text whose characters stand for bytes into `out`, which has room for all of it; returns
// the number of bytes, or nullopt for other characters.
std::optional<std::size_t> decode_latin1(std::string_view text, char* out) noexcept {
  const char* const begin = out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x80) {
      if (byte > 0xC3) return std::nullopt;  // begins a character beyond the first 256
      byte = static_cast<unsigned char>(byte << 6 | (text[++i] & 0x3F));
    }
    *out++ = static_cast<char>(byte);
  }
  return static_cast<std::size_t>(out - begin);
}

}  // namespace

bool Machine::make_bytes(const value::Cell& callable, const value::Cell& arguments,
                         value::Cell& made) {
  if (kind_of(callable) != Value::Kind::global || kind_of(made) != none) return true;
  const auto& function = *value::target_of<const value::Global>(callable);
  const bool is_encode = function.module == "_codecs" && function.name == "encode";
  const bool is_array = is_builtin(function, "bytearray");
  if (!is_encode && !is_array && !is_builtin(function, "bytes")) return true;
  const Value::Kind kind = is_array ? byte_array : Value::Kind::bytes;
  const value::Cell content = arguments.count == 0 ? value::Cell{} : tuple_element(arguments, 0);
  const std::string_view text = tree_.text(content.payload, content.count);
  const bool is_text =
      kind_of(content) == string && arguments.count == 2 && (is_encode || is_array);
  const bool is_whole = kind_of(content) == Value::Kind::bytes && arguments.count == 1 && is_array;
  if (is_text) {
    const value::Cell encoding = tuple_element(arguments, 1);
    if (kind_of(encoding) != string) return true;
    const std::string_view name = tree_.text(encoding.payload, encoding.count);
    if (name != "latin1" && name != "latin-1") return true;
  } else if (!is_whole && (arguments.count != 0 || is_encode)) {
    return true;
  }
  // Never the text itself, since each bytearray has a place of its own.
  char* const kept = arena_.allocate<char>(text.size() + 1);
  if (kept == nullptr) return fail_budget();
  std::optional<std::size_t> size = text.size();
  if (is_text)
    size = decode_latin1(text, kept);
  else if (!text.empty())
    std::memcpy(kept, text.data(), text.size());
  if (size)
    made = value::make_cell(kind, tree_.position_of(kept), static_cast<std::uint32_t>(*size));
  return true;
}

}  // namespace weightmap::pickle
