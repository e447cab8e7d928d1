#include "runtime/formats/npz/array.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/bytes/byte_cursor.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/base/bytes/row_major.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/format/numpy_dtype.hpp"

namespace weightmap::npz {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::uint64_t longest_text = 65535;

std::string_view as_text(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns a description of a dtype that no tensor has, by the letter behind the byte order.
std::string_view kind_of(char letter) noexcept {
  switch (letter) {
    case 'O':
      return "Python objects, which are pickled; if you trust them, load them with "
             "numpy.load(allow_pickle=True), and save the arrays among them with numpy.savez";
    case 'U':
    case 'S':
      return "text";
    case 'V':
      return "bytes without a type";
    case 'M':
    case 'm':
      return "dates or spans of time";
    default:
      return "no dtype of a tensor";
  }
}

// By its name in numpy, behind the byte order.
std::optional<DType> dtype_of(std::string_view name) noexcept {
  if (name == "V1") return DType::opaque8;
  if (name == "V2") return DType::opaque16;
  return format::numpy_dtype(name);
}

class TextParser {
 public:
  // `begin`: where the text begins in the header.
  TextParser(std::string_view text, std::size_t begin, std::uint32_t most_dims)
      : text_(text), begin_(begin), most_dims_(most_dims) {}

  Result<ArrayHeader> run() && {
    TRY(expect('{'));
    while (!take('}')) {
      TRY(read_field());
      if (take(',')) continue;
      TRY(expect('}'));
      break;
    }
    skip_spaces();
    if (at_ != text_.size()) return refuse(ErrorCode::corrupt, "has more behind its dict", at_);
    for (const Field& field : fields_)
      if (!field.is_there)
        return refuse(ErrorCode::corrupt,
                      "has no field " + bytes::quote(field.name) + " in its header", 0);
    return std::move(made_);
  }

 private:
  struct Field {
    std::string_view name;
    Result<void> (TextParser::*read)();
    bool is_there = false;
  };

  tl::unexpected<Error> refuse(ErrorCode code, const std::string& what, std::size_t at) const {
    const std::string field = field_.empty() ? "" : "field " + bytes::quote(field_) + " ";
    return failure(code, field + what, begin_ + at);
  }
  tl::unexpected<Error> expected(const std::string& what) const {
    const std::string found =
        at_ < text_.size() ? bytes::quote(text_.substr(at_, 1)) : "the end of the header";
    return refuse(ErrorCode::corrupt, "has " + found + " where " + what + " was expected", at_);
  }

  void skip_spaces() noexcept {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char next() noexcept {
    skip_spaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) noexcept {
    if (next() != wanted || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  Result<void> expect(char wanted) {
    if (take(wanted)) return {};
    return expected(bytes::quote({&wanted, 1}));
  }
  bool take_word(std::string_view word) noexcept {
    skip_spaces();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  // Without an escape: no string that numpy writes here has one.
  Result<std::string_view> read_string() {
    const char mark = next();
    if (mark != '\'' && mark != '"') return expected("a string");
    const std::size_t begin = ++at_;
    const std::size_t end = text_.find(mark, begin);
    const std::string_view string = text_.substr(begin, end - begin);
    if (end == std::string_view::npos || string.find_first_of("\\\n") != std::string_view::npos)
      return refuse(ErrorCode::corrupt, "has a string that does not end, or one with an escape",
                    begin);
    at_ = end + 1;
    return string;
  }

  Result<void> read_field() {
    field_ = {};
    const std::size_t begin = at_;
    TRY_ASSIGN(const std::string_view name, read_string());
    for (Field& field : fields_) {
      if (field.name != name) continue;
      if (std::exchange(field.is_there, true))
        return refuse(ErrorCode::corrupt, "has the field " + bytes::quote(name) + " twice", begin);
      TRY(expect(':'));
      field_ = field.name;
      TRY((this->*field.read)());
      field_ = {};
      return {};
    }
    return refuse(ErrorCode::corrupt,
                  "has the field " + bytes::quote(name, 40) + ", which no .npy header has", begin);
  }

  Result<void> read_dtype() {
    if (next() == '[') return read_structure();
    const std::size_t begin = at_;
    TRY_ASSIGN(const std::string_view descr, read_string());
    const std::string shown = "is " + bytes::quote(descr, 40);
    const std::string_view name = descr.substr(descr.empty() ? 0 : 1);
    if (name.empty() || std::string_view("<>|=").find(descr[0]) == std::string_view::npos)
      return refuse(ErrorCode::corrupt, shown + ", which does not begin with a byte order", begin);
    const std::optional<DType> dtype = descr[0] == '>' ? std::nullopt : dtype_of(name);
    if (!dtype) {
      made_.foreign_type = descr;
      const bool is_number = format::numpy_dtype(name).has_value();
      made_.foreign_reason =
          shown + ": " + std::string(is_number ? "big-endian order" : kind_of(name[0]));
      return {};
    }
    if (is_opaque(*dtype)) {
      made_.dtype = *dtype;
      return {};
    }
    if (descr[0] == '=' || (descr[0] == '|' && element_size(*dtype) != 1))
      return refuse(ErrorCode::corrupt, shown + ", which does not say its byte order", begin);
    made_.dtype = *dtype;
    return {};
  }

  // A list of fields: ('name', type, shape) each, whose types may be lists again.
  Result<void> read_structure() {
    constexpr std::string_view opening = "[(", closing = "])";
    const std::size_t begin = at_;
    std::string open;
    do {
      const char found = next();
      if (at_ == text_.size()) return expected("the end of a structure");
      if (found == '\'' || found == '"') {
        TRY(read_string());
        continue;
      }
      if (const std::size_t kind = opening.find(found); kind != opening.npos)
        open += closing[kind];
      else if (closing.find(found) != closing.npos) {
        if (open.back() != found) return expected(bytes::quote(open.substr(open.size() - 1)));
        open.pop_back();
      }
      ++at_;
    } while (!open.empty());
    made_.foreign_type = text_.substr(begin, at_ - begin);
    made_.foreign_reason = "is a structure, which is no dtype of a tensor";
    return {};
  }

  Result<void> read_order() {
    made_.is_fortran_order = take_word("True");
    if (made_.is_fortran_order || take_word("False")) return {};
    return expected("True or False");
  }

  Result<void> read_shape() {
    TRY(expect('('));
    bool has_comma = true;  // "(3)" is a number
    while (!take(')')) {
      if (!has_comma) return expected("\",\" or \")\"");
      TRY(read_size());
      has_comma = take(',');
      if (made_.shape.size() == 1 && !has_comma) return expected("\",\"");
    }
    return {};
  }

  Result<void> read_size() {
    if (made_.shape.size() == most_dims_)
      return refuse(ErrorCode::limit_exceeded,
                    "has more than " + bytes::counted(most_dims_, "dimension"), at_);
    std::int64_t size = 0;
    const char first = next();
    const std::size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (!bytes::checked_mul(size, std::int64_t{10}, &size) ||
          !bytes::checked_add(size, std::int64_t{text_[at_] - '0'}, &size))
        return refuse(ErrorCode::corrupt, "has a size that does not fit 63 bits", begin);
    if (at_ == begin || (first == '0' && at_ != begin + 1)) return expected("a size");
    take_word("L");  // numpy of Python 2 wrote it
    made_.shape.push_back(size);
    return {};
  }

  std::string_view text_;
  std::size_t begin_;
  std::uint32_t most_dims_;
  std::size_t at_ = 0;
  std::string_view field_;  // that is being read
  ArrayHeader made_;
  Field fields_[3] = {{"descr", &TextParser::read_dtype},
                      {"fortran_order", &TextParser::read_order},
                      {"shape", &TextParser::read_shape}};
};

// Returns the offset of the text behind the field `length`.
std::size_t text_begin(std::span<const std::byte> header) noexcept {
  constexpr std::size_t short_length = 2;
  return static_cast<int>(header[magic.size()]) == 1 ? magic.size() + 2 + short_length
                                                     : preamble_bytes;
}

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

tl::unexpected<Error> too_large() {
  return failure(ErrorCode::corrupt, "field \"shape\" has sizes whose product does not fit 64 bits",
                 0);
}

Result<DType> told_dtype(std::string_view name, DType listed, const OpenOptions& options) {
  const auto told = options.dtypes.find(name);
  if (!is_opaque(listed) || told == options.dtypes.end()) return listed;
  const DType dtype = told->second;
  if (!is_blocked(dtype) && element_size(dtype) == element_size(listed)) return dtype;
  return failure(ErrorCode::invalid_argument,
                 "array " + bytes::quote(name) + " has elements of type " +
                     std::string(to_string(listed)) + ", which are no " +
                     std::string(to_string(dtype)) + " as the option dtypes says");
}

}  // namespace

Result<std::uint64_t> header_length(std::span<const std::byte> front) {
  if (!as_text(front).starts_with(magic))
    return failure(ErrorCode::corrupt, "does not begin as a .npy array", 0);
  if (front.size() < preamble_bytes)
    return failure(ErrorCode::corrupt,
                   "ends within its header, after " + bytes::counted(front.size(), "byte"), 0);
  bytes::ByteCursor cursor(front.subspan(magic.size()));
  const std::span<const std::byte> version = cursor.take(2);
  const auto major = static_cast<unsigned>(version[0]);
  if (major < 1 || major > 3 || static_cast<unsigned>(version[1]) != 0)
    return failure(ErrorCode::unsupported,
                   "has version " + std::to_string(major) + "." +
                       std::to_string(static_cast<unsigned>(version[1])) +
                       " of the .npy format; 1.0, 2.0 and 3.0 are read",
                   magic.size());
  const std::uint64_t length = major == 1 ? cursor.u16() : cursor.u32();
  if (length > longest_text)
    return failure(ErrorCode::limit_exceeded,
                   "has a header of " + bytes::counted(length, "byte") + ", the limit is " +
                       std::to_string(longest_text),
                   magic.size() + 2);
  return text_begin(front) + length;
}

Result<ArrayHeader> read_header(std::span<const std::byte> header, std::uint32_t most_dims) {
  const std::size_t begin = text_begin(header);
  TRY_ASSIGN(ArrayHeader made, TextParser(as_text(header.subspan(begin)), begin, most_dims).run());
  made.length = header.size();
  return made;
}

Result<std::uint64_t> elements_bytes(const ArrayHeader& header) {
  Size bytes = bytes_of_element(header);
  if (!bytes)
    return failure(ErrorCode::unsupported,
                   "has elements of type " + bytes::quote(header.foreign_type, 40) +
                       ", whose size is not known, so that what is behind them was not looked at");
  for (const std::int64_t size : header.shape)
    bytes = product(bytes, static_cast<std::uint64_t>(size));
  return bytes ? Result<std::uint64_t>(*bytes) : too_large();
}

Result<format::ListedTensor> list_array(std::string_view name, const ArrayHeader& header,
                                        const OpenOptions& options, format::TensorList& list) {
  TRY_ASSIGN(const DType dtype, told_dtype(name, header.dtype, options));
  std::vector<std::int64_t> sizes = header.shape;
  std::vector<std::int64_t> strides(sizes.size());
  if (header.is_fortran_order) std::ranges::reverse(sizes);
  if (!bytes::row_major_strides(sizes, strides)) return too_large();
  if (header.is_fortran_order) std::ranges::reverse(strides);
  TRY_ASSIGN(const std::uint64_t nbytes, elements_bytes(header));
  format::ListedTensor tensor{};
  tensor.name = name;
  tensor.end = nbytes;
  tensor.first_dim = static_cast<std::uint32_t>(list.dims.size());
  tensor.dtype = dtype;
  tensor.rank = static_cast<std::uint8_t>(header.shape.size());
  tensor.is_viewable = true;
  list.dims.insert(list.dims.end(), header.shape.begin(), header.shape.end());
  list.dims.insert(list.dims.end(), strides.begin(), strides.end());
  return tensor;
}

}  // namespace weightmap::npz
