#include "runtime/json/json_tree.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/value/tree.hpp"

namespace weightmap::json {
namespace {

using Json = nlohmann::json;
using value::Builder;
using value::Cell;

// Goes through the text for the parser, which does not tell where it is, and counts what it takes.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, std::size_t* taken) noexcept : at_(at), taken_(taken) {}
  reference operator*() const noexcept { return *at_; }
  Cursor& operator++() noexcept {
    ++at_;
    ++*taken_;
    return *this;
  }
  Cursor operator++(int) noexcept {
    const Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const noexcept { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const noexcept { return at_ != other.at_; }

 private:
  const char* at_;
  std::size_t* taken_;
};

// Where the key number `index` begins of the object that begins at `text[at]` and is JSON.
std::size_t find_key(std::string_view text, std::size_t at, std::size_t index) {
  for (std::size_t depth = 0;; ++at) {
    if (text[at] == '{' || text[at] == '[') ++depth;
    if (text[at] == '}' || text[at] == ']') --depth;
    if (text[at] != '"') continue;
    const std::size_t begin = at;
    for (++at; text[at] != '"'; ++at)
      if (text[at] == '\\') ++at;
    const bool is_key = depth == 1 && text[text.find_first_not_of(" \t\r\n", at + 1)] == ':';
    if (is_key && index-- == 0) return begin;
  }
}

// Told of each part of the document by the parser, which stops where it answers false.
class TreeMaker {
 public:
  TreeMaker(Builder& build, std::string_view text) : build_(build), text_(text) {}

  void run() {
    if (text_.starts_with("\xef\xbb\xbf")) told_ = 3;
    Json::sax_parse(Cursor(text_.data(), &taken_), Cursor(text_.data() + text_.size(), &taken_),
                    this);
  }

  bool null() { return add(build_.none()); }
  bool boolean(bool value) { return add(build_.boolean(value)); }
  bool number_integer(Json::number_integer_t value) { return add_number(build_.integer(value)); }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return fail("a number is larger than 2^63 - 1");
    return add_number(build_.integer(static_cast<std::int64_t>(value)));
  }
  // The parser makes integers of more than 64 bits such numbers, too.
  bool number_float(Json::number_float_t value, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos)
      return fail(value < 0 ? "a number is smaller than -2^63"
                            : "a number is larger than 2^63 - 1");
    return add_number(build_.real(value));
  }
  bool string(std::string& text) { return add(build_.string(text)); }
  bool binary(Json::binary_t&) { return fail("binary values are not JSON"); }
  bool start_object(std::size_t) { return open(); }
  bool start_array(std::size_t) { return open(); }
  bool key(std::string& text) { return add(build_.string(text)); }
  bool end_object() { return append_waiting() && check_keys() && close(Value::Kind::dict); }
  bool end_array() { return append_waiting() && close(Value::Kind::list); }
  // `position`: behind what the parser has looked at, of which the end of the text is a byte.
  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    constexpr int overflow = 406;
    if (error.id == overflow) return fail("a number is larger than a double can be");
    if (position > text_.size()) return fail("is not JSON", text_.size());
    // A whole token is wrong from its beginning on, one that is none where it ceases to be one.
    const std::size_t begin = std::min(next_token(), position);
    const bool is_token = Json::accept(text_.substr(begin, position - begin));
    return fail("is not JSON", is_token ? begin : position - 1);
  }

  Result<Cell> made() && {
    if (!error_.message.empty()) return tl::unexpected<Error>(std::move(error_));
    return root_;
  }

 private:
  // One that has not ended yet. Nearly all of its cells are in the tree already, and so within the
  // builder's budget.
  struct Container {
    value::Sequence* cells;
    std::size_t begin;  // in the text
    std::vector<Cell> waiting;
  };
  static constexpr std::size_t most_waiting = 254;  // little is left of a block of the arena

  bool open() {
    constexpr std::size_t deepest = 64;
    if (open_.size() == deepest) return fail("nests deeper than 64 containers");
    open_.push_back({build_.sequence(), next_token(), {}});
    told_ = taken_;
    return check();
  }
  bool close(Value::Kind kind) {
    const Cell made = value::make_cell(kind, open_.back().cells);
    open_.pop_back();
    return add(made);
  }
  // Its end is known by the byte behind it, or by that of the text, behind which nothing is told.
  bool add_number(const Cell& cell) {
    const bool fits = add(cell);
    told_ = taken_ - 1;
    return fits;
  }
  bool add(const Cell& cell) {
    told_ = taken_;
    if (open_.empty()) {
      root_ = cell;
      return check();
    }
    std::vector<Cell>& waiting = open_.back().waiting;
    waiting.push_back(cell);
    return waiting.size() < most_waiting ? check() : append_waiting();
  }
  bool append_waiting() {
    Container& container = open_.back();
    build_.append(*container.cells, container.waiting);
    container.waiting.clear();
    return check();
  }
  bool check_keys() {
    keys_.clear();
    value::CellCursor cursor(open_.back().cells);
    keys_.reserve(open_.back().cells->count / 2);
    while (const Cell* key = cursor.next()) {
      keys_.push_back(key);
      cursor.next();
    }
    const auto text = [this](const Cell* key) { return build_.text(*key); };
    // Texts are kept in the order of the document.
    std::ranges::sort(keys_, {},
                      [text](const Cell* key) { return std::pair(text(key), key->payload); });
    const Cell* again = nullptr;
    for (std::size_t i = 1; i < keys_.size(); ++i)
      if (text(keys_[i]) == text(keys_[i - 1]) &&
          (again == nullptr || keys_[i]->payload < again->payload))
        again = keys_[i];
    if (again == nullptr) return true;
    return fail("an object has the key " + bytes::quote(text(again)) + " twice",
                find_key(text_, open_.back().begin, index_of(again)));
  }
  std::size_t index_of(const Cell* key) const {
    value::CellCursor cursor(open_.back().cells);
    for (std::size_t index = 0;; ++index) {
      if (cursor.next() == key) return index;
      cursor.next();
    }
  }
  bool check() {
    Result<void> fits = build_.check();
    if (!fits) error_ = std::move(fits.error());
    return fits.has_value();
  }
  // Where the token begins that is told next.
  std::size_t next_token() const noexcept {
    return std::min(text_.find_first_not_of(" \t\r\n,:", told_), text_.size());
  }
  bool fail(std::string why) { return fail(std::move(why), next_token()); }
  bool fail(std::string why, std::size_t position) {
    error_ = {ErrorCode::corrupt, std::move(why), position, {}};
    return false;
  }

  Builder& build_;
  std::string_view text_;
  std::size_t taken_ = 0;  // bytes that the parser has looked at
  std::size_t told_ = 0;   // where what it has told of ends
  std::vector<Container> open_;
  std::vector<const Cell*> keys_;  // of the object that ends
  Cell root_;
  Error error_;
};

}  // namespace

Result<Cell> add_document(Builder& build, std::string_view text) {
  TreeMaker maker(build, text);
  maker.run();
  return std::move(maker).made();
}

}  // namespace weightmap::json
