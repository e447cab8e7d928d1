// Calls that stand for a value, which become the value, so that names, places and all that is made
// of it follow from one form.
//
// Dicts: Python 2 pickles an OrderedDict as a call with a list of pairs, and every Python pickles a
// Counter as a call with a dict. Such a call becomes one without contents, whose items are these,
// as every pickler of today writes it. The items are those at the time of the call, as in Python.
//
// Bytes: protocols 0 to 2 pickle bytes as _codecs.encode(text, "latin1"), and none as bytes(); a
// bytearray is a call up to protocol 4.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/pickle/machine.hpp"
#include "runtime/base/value/build.hpp"

namespace weightmap::pickle {
namespace {

using enum Value::Kind;

struct DictClass {
  std::string_view module, name;
  std::uint32_t content;  // the argument that the dict is filled from
  bool takes_pairs;       // a Counter counts the elements of a list
};

constexpr auto dict_classes = std::to_array<DictClass>({
    {"collections", "OrderedDict", 0, true},
    {"collections", "Counter", 0, false},
    {"collections", "defaultdict", 1, true},
    {"builtins", "dict", 0, true},
    {"__builtin__", "dict", 0, true},
});

const DictClass* dict_class(const value::Cell& callable) noexcept {
  if (kind_of(callable) != Value::Kind::global) return nullptr;
  const auto& named = *value::target_of<const value::Global>(callable);
  const auto* const found = std::ranges::find_if(dict_classes, [&](const DictClass& known) {
    return known.name == named.name && known.module == named.module;
  });
  return found == dict_classes.end() ? nullptr : found;
}

// The elements of a list or tuple, one by one.
class Elements {
 public:
  static bool can_walk(const value::Cell& cell) noexcept {
    return cell.part == value::whole_value && (kind_of(cell) == list || kind_of(cell) == tuple);
  }
  explicit Elements(const value::Cell& cell) noexcept : cell_(cell) {
    if (kind_of(cell) == list)
      cursor_ = value::CellCursor(value::target_of<const value::Sequence>(cell));
  }
  const value::Cell* next() noexcept {
    if (kind_of(cell_) == list) return cursor_.next();
    return at_ < cell_.count ? value::target_of<const value::Cell>(cell_) + at_++ : nullptr;
  }

 private:
  value::Cell cell_;
  value::CellCursor cursor_;
  std::uint32_t at_ = 0;
};

// Appends the two elements of a pair; false if it is none with a usable key.
bool append_pair(const value::Cell& pair, std::vector<value::Cell>& items) {
  if (!Elements::can_walk(pair)) return false;
  Elements elements(pair);
  const value::Cell* const key = elements.next();
  const value::Cell* const item = elements.next();
  if (item == nullptr || elements.next() != nullptr || !may_be_key(kind_of(*key))) return false;
  items.push_back(*key);
  items.push_back(*item);
  return true;
}

// Returns keys and values in turn; nullopt if the content is anything else than a dict or pairs.
std::optional<std::vector<value::Cell>> items_of(const value::Cell& content, bool takes_pairs,
                                                 std::uint64_t& looked_at) {
  std::vector<value::Cell> items;
  if (kind_of(content) == dict) {
    value::CellCursor cells(value::target_of<const value::Sequence>(content));
    while (const value::Cell* cell = cells.next()) items.push_back(*cell);
    return items;
  }
  if (!takes_pairs || !Elements::can_walk(content)) return std::nullopt;
  Elements pairs(content);
  while (const value::Cell* pair = pairs.next()) {
    ++looked_at;
    if (!append_pair(*pair, items)) return std::nullopt;
  }
  return items;
}

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

bool Machine::make_filled_dict(const value::Cell& callable, const value::Cell& arguments,
                               value::Cell& made) {
  const DictClass* const type = dict_class(callable);
  if (type == nullptr || arguments.count != type->content + 1) return true;
  std::uint64_t looked_at = 0;
  const std::optional<std::vector<value::Cell>> items =
      items_of(tuple_element(arguments, type->content), type->takes_pairs, looked_at);
  // A list that is no list of pairs may be looked at once for each of many calls.
  if (!items) return arena_.charge(looked_at * sizeof(value::Cell)) || fail_budget();
  value::Cell others = value::make_cell(tuple, std::uint64_t{0});
  if (type->content != 0 &&
      !make_tuple(value::target_of<const value::Cell>(arguments), type->content, others))
    return false;
  if (!make_object(callable, others, false, made)) return false;
  const auto count = static_cast<std::uint32_t>(items->size());
  return count == 0 || extend(made, dict, &value::Object::items, items->data(), count);
}

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
