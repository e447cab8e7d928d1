#include "runtime/base/json/json_tree.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/repeated.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/tree.hpp"

namespace weightmap::json {
namespace {

using value::Builder;
using value::Cell;
using Next = TokenReader::Next;

// A failed step leaves its error in the reader or in the builder.
class TreeMaker {
 public:
  TreeMaker(Builder& build, TokenReader& json) : build_(build), json_(json) {}

  bool add_value(Cell& made) {
    switch (json_.next()) {
      case Next::object:
        return add_object(made, &TreeMaker::add_value);
      case Next::array:
        return add_array(made);
      case Next::string:
        return add_string(made);
      case Next::boolean: {
        bool value = false;
        if (!json_.boolean(value)) return false;
        made = build_.boolean(value);
        return true;
      }
      case Next::null:
        return json_.null();
      default:
        return add_number(made);
    }
  }
  bool add_strings(Cell& made) { return add_object(made, &TreeMaker::add_string); }

 private:
  bool add_string(Cell& made) {
    std::string_view text;
    if (!json_.string(text)) return false;
    made = build_.string(text);
    return fits();
  }
  bool add_object(Cell& made, bool (TreeMaker::*add_item)(Cell&)) {
    if (!json_.enter_object()) return false;
    Container object{build_.sequence(), {}};
    std::vector<bytes::Named> keys;
    std::string_view key;
    while (fits() && json_.next_key(key)) {
      keys.push_back({key, json_.position()});
      object.waiting.push_back(build_.string(key));
      if (!(this->*add_item)(object.waiting.emplace_back())) return false;
      append(object, most_waiting);
    }
    return !json_.failed() && check(keys) && end(object, Value::Kind::dict, made);
  }

  // An unfinished container. Nearly all of its cells are in the tree, within the builder's budget.
  struct Container {
    value::Sequence* cells;
    std::vector<Cell> waiting;
  };
  static constexpr std::size_t most_waiting = 254;  // fills most of a block of the arena

  bool add_array(Cell& made) {
    if (!json_.enter_array()) return false;
    Container array{build_.sequence(), {}};
    while (fits() && json_.next_element()) {
      if (!add_value(array.waiting.emplace_back())) return false;
      append(array, most_waiting);
    }
    return !json_.failed() && end(array, Value::Kind::list, made);
  }
  bool add_number(Cell& made) {
    std::variant<std::int64_t, double> number;
    if (!json_.number(number)) return false;
    const auto* integer = std::get_if<std::int64_t>(&number);
    made = integer != nullptr ? build_.integer(*integer) : build_.real(std::get<double>(number));
    return true;
  }
  void append(Container& container, std::size_t least) {
    if (container.waiting.size() < least) return;
    build_.append(*container.cells, container.waiting);
    container.waiting.clear();
  }
  bool end(Container& ended, Value::Kind kind, Cell& made) {
    if (!fits()) return false;
    append(ended, 0);
    made = value::make_cell(kind, ended.cells);
    return fits();
  }
  bool check(std::vector<bytes::Named>& keys) {
    const bytes::Named* const again = bytes::find_repeated(keys);
    return again == nullptr ||
           json_.fail("an object has the key " + bytes::quote(again->text) + " twice",
                      again->position);
  }
  bool fits() const { return build_.check().has_value(); }

  Builder& build_;
  TokenReader& json_;
};

Result<Cell> add(Builder& build, TokenReader& json, bool (TreeMaker::*add_root)(Cell&)) {
  Cell root;
  TreeMaker maker(build, json);
  if ((maker.*add_root)(root)) return root;
  TRY(build.check());
  return tl::unexpected<Error>(json.error());
}

}  // namespace

Result<Cell> add_value(Builder& build, TokenReader& json) {
  return add(build, json, &TreeMaker::add_value);
}

Result<Cell> add_strings(Builder& build, TokenReader& json) {
  return add(build, json, &TreeMaker::add_strings);
}

Result<Cell> add_document(Builder& build, std::string_view text) {
  TokenReader json(text);
  TRY_ASSIGN(const Cell root, add_value(build, json));
  if (!json.end()) return tl::unexpected<Error>(json.error());
  return root;
}

}  // namespace weightmap::json
