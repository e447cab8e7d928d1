#include "runtime/formats/npz/array_header.hpp"

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/bytes/byte_cursor.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
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

}  // namespace weightmap::npz
