#include "runtime/formats/npz/element_bytes.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/formats/format/numpy_dtype.hpp"

namespace weightmap::npz {
namespace {

using Size = std::optional<std::uint64_t>;

Size product(Size a, Size b) noexcept {
  std::uint64_t made = 0;
  return a && b && bytes::checked_mul(*a, *b, &made) ? Size(made) : std::nullopt;
}

// Of "<f4", "|S10", "<U3", "<M8[ns]".
Size bytes_of_type(std::string_view type) noexcept {
  if (type.find_first_of("<>|=") == 0) type.remove_prefix(1);
  if (type.empty()) return std::nullopt;
  const char kind = type[0];
  type.remove_prefix(1);
  const Size number = bytes::take_number(type);
  const bool is_date = kind == 'M' || kind == 'm';
  const bool is_known = std::string_view("biufcSVUMm").find(kind) != std::string_view::npos;
  if (!is_known || (!type.empty() && !is_date)) return std::nullopt;
  return product(number, kind == 'U' ? 4 : 1);
}

// Of "[('a', '<f4'), ('b', [('x', '<i8')], (2, 3))]", whose brackets match.
Size bytes_of_structure(std::string_view text) {
  struct Level {     // of fields within fields
    Size sum = 0;    // of the fields up to here
    Size field = 0;  // of the one that is being read
    int part = 0;    // of it: name, type, shape
    int parentheses = 0;
  };
  std::vector<Level> levels(1);
  while (!text.empty()) {
    Level& level = levels.back();
    const char next = text[0];
    if (level.part == 2 && next >= '0' && next <= '9') {
      level.field = product(level.field, bytes::take_number(text));
      continue;
    }
    text.remove_prefix(1);
    if (next == '\'' || next == '"') {
      const std::size_t end = std::min(text.find(next), text.size());
      if (level.part == 1) level.field = bytes_of_type(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    } else if (next == '[') {
      levels.emplace_back();
    } else if (next == ']' && levels.size() > 1) {
      const Size sum = level.sum;
      levels.pop_back();
      levels.back().field = sum;
    } else if (next == '(') {
      if (++level.parentheses == 1) level.part = 0;
    } else if (next == ',' && level.parentheses == 1) {
      ++level.part;
    } else if (next == ')' && --level.parentheses == 0) {
      std::uint64_t sum = 0;
      const bool fits =
          level.sum && level.field && bytes::checked_add(*level.sum, *level.field, &sum);
      level.sum = fits ? Size(sum) : std::nullopt;
    }
  }
  return levels.front().field;
}

Size bytes_of_element(const ArrayHeader& header) {
  if (header.foreign_type.empty()) return element_size(header.dtype);
  return header.foreign_type[0] == '[' ? bytes_of_structure(header.foreign_type)
                                       : bytes_of_type(header.foreign_type);
}

}  // namespace

Result<std::uint64_t> elements_bytes(const ArrayHeader& header) {
  Size bytes = bytes_of_element(header);
  if (!bytes)
    return failure(ErrorCode::unsupported,
                   "has elements of type " + bytes::quote(header.foreign_type, 40) +
                       ", whose size is not known, so that what is behind them was not looked at");
  for (const std::int64_t size : header.shape)
    bytes = product(bytes, static_cast<std::uint64_t>(size));
  if (bytes) return *bytes;
  return failure(ErrorCode::corrupt, "field \"shape\" has sizes whose product does not fit 64 bits",
                 0);
}

}  // namespace weightmap::npz
