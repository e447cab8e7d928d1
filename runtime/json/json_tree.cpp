#include "runtime/json/json_tree.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/value/tree.hpp"

namespace weightmap::json {
namespace {

using value::Builder;
using value::Cell;
using Next = Reader::Next;

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

// Goes through one value with a stack of its own for the containers that it is in.
class TreeMaker {
 public:
  TreeMaker(Builder& build, Reader& json) : build_(build), json_(json) {}

  Result<Cell> run() {
    bool goes_on = add_next();
    while (goes_on && !open_.empty()) goes_on = has_more() ? add_next() : close();
    if (!limit_.message.empty()) return tl::unexpected<Error>(std::move(limit_));
    if (!goes_on) return tl::unexpected<Error>(json_.error());
    return root_;
  }

 private:
  // One that has not ended yet. Nearly all of its cells are in the tree already, and so within the
  // builder's budget.
  struct Container {
    bool is_object;
    value::Sequence* cells;
    std::size_t begin;  // in the text
    std::vector<Cell> waiting;
  };
  static constexpr std::size_t most_waiting = 254;  // little is left of a block of the arena

  bool has_more() {
    if (!open_.back().is_object) return json_.next_element();
    std::string_view key;
    return json_.next_key(key) && add(build_.string(key));
  }
  bool add_next() {
    switch (json_.next()) {
      case Next::object:
        return json_.enter_object() && open(true);
      case Next::array:
        return json_.enter_array() && open(false);
      case Next::string: {
        std::string_view text;
        return json_.string(text) && add(build_.string(text));
      }
      case Next::boolean: {
        bool value = false;
        return json_.boolean(value) && add(build_.boolean(value));
      }
      case Next::null:
        return json_.null() && add(build_.none());
      default:
        return add_number();
    }
  }
  bool add_number() {
    std::variant<std::int64_t, double> number;
    if (!json_.number(number)) return false;
    if (const auto* integer = std::get_if<std::int64_t>(&number))
      return add(build_.integer(*integer));
    return add(build_.real(std::get<double>(number)));
  }
  bool open(bool is_object) {
    open_.push_back({is_object, build_.sequence(), json_.position(), {}});
    return check();
  }
  // Where an item was expected: the end of a container, unless something is wrong.
  bool close() {
    if (json_.failed() || !limit_.message.empty() || !append_waiting()) return false;
    Container& ended = open_.back();
    if (ended.is_object && !check_keys(ended)) return false;
    const Value::Kind kind = ended.is_object ? Value::Kind::dict : Value::Kind::list;
    const Cell made = value::make_cell(kind, ended.cells);
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
  bool check_keys(const Container& object) {
    keys_.clear();
    keys_.reserve(object.cells->count / 2);
    value::CellCursor cursor(object.cells);
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
    return json_.fail("an object has the key " + bytes::quote(text(again)) + " twice",
                      find_key(json_.text(), object.begin, index_of(object, again)));
  }
  static std::size_t index_of(const Container& object, const Cell* key) {
    value::CellCursor cursor(object.cells);
    for (std::size_t index = 0;; ++index) {
      if (cursor.next() == key) return index;
      cursor.next();
    }
  }
  bool check() {
    Result<void> fits = build_.check();
    if (!fits) limit_ = std::move(fits.error());
    return fits.has_value();
  }

  Builder& build_;
  Reader& json_;
  std::vector<Container> open_;
  std::vector<const Cell*> keys_;  // of the object that ends
  Cell root_;
  Error limit_;  // of the builder
};

}  // namespace

Result<Cell> add_value(Builder& build, Reader& json) { return TreeMaker(build, json).run(); }

Result<Cell> add_document(Builder& build, std::string_view text) {
  Reader json(text);
  TRY_ASSIGN(const Cell root, add_value(build, json));
  if (!json.end()) return tl::unexpected<Error>(json.error());
  return root;
}

}  // namespace weightmap::json
