#include "runtime/json/json_tree.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/value/tree.hpp"

namespace weightmap::json {
namespace {

using Json = nlohmann::json;
using value::Builder;
using value::Cell;

// Told of each part of the document by the parser, which stops where it answers false.
class TreeMaker {
 public:
  explicit TreeMaker(Builder& build) : build_(build) {}

  bool null() { return add(build_.none()); }
  bool boolean(bool value) { return add(build_.boolean(value)); }
  bool number_integer(Json::number_integer_t value) { return add(build_.integer(value)); }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return fail("a number is larger than 2^63 - 1");
    return add(build_.integer(static_cast<std::int64_t>(value)));
  }
  bool number_float(Json::number_float_t value, const std::string&) {
    return add(build_.real(value));
  }
  bool string(std::string& text) { return add(build_.string(text)); }
  bool binary(Json::binary_t&) { return fail("binary values are not JSON"); }
  bool start_object(std::size_t) { return open(); }
  bool start_array(std::size_t) { return open(); }
  bool key(std::string& text) { return add(build_.string(text)); }
  bool end_object() { return append_waiting() && check_keys() && close(Value::Kind::dict); }
  bool end_array() { return append_waiting() && close(Value::Kind::list); }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) {
    error_ = {ErrorCode::corrupt, "is not JSON", position, {}};
    return false;
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
    std::vector<Cell> waiting;
  };
  static constexpr std::size_t most_waiting = 254;  // little is left of a block of the arena

  bool open() {
    constexpr std::size_t deepest = 64;
    if (open_.size() == deepest) return fail("nests deeper than 64 containers");
    open_.push_back({build_.sequence(), {}});
    return check();
  }
  bool close(Value::Kind kind) {
    const Cell made = value::make_cell(kind, open_.back().cells);
    open_.pop_back();
    return add(made);
  }
  bool add(const Cell& cell) {
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
    std::ranges::sort(keys_, {}, [this](const Cell* key) { return build_.text(*key); });
    const auto twice = std::ranges::adjacent_find(
        keys_, {}, [this](const Cell* key) { return build_.text(*key); });
    if (twice == keys_.end()) return true;
    return fail("an object has the key " + bytes::quote(build_.text(**twice)) + " twice");
  }
  bool check() {
    Result<void> fits = build_.check();
    if (!fits) error_ = std::move(fits.error());
    return fits.has_value();
  }
  bool fail(std::string why) {
    error_ = {ErrorCode::corrupt, std::move(why), Error::no_offset, {}};
    return false;
  }

  Builder& build_;
  std::vector<Container> open_;
  std::vector<const Cell*> keys_;  // of the object that ends
  Cell root_;
  Error error_;
};

}  // namespace

Result<Cell> add_document(Builder& build, std::string_view text) {
  TreeMaker maker(build);
  Json::sax_parse(text.begin(), text.end(), &maker);
  return std::move(maker).made();
}

}  // namespace weightmap::json
