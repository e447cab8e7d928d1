// Stores calls and globals of the pickle unchanged, and calls nothing.
#include <algorithm>
#include <array>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/pickle/machine.hpp"
#include "runtime/base/pickle/opcode.hpp"
#include "runtime/base/value/build.hpp"

namespace weightmap::pickle {
namespace {

using enum Value::Kind;

// True for a global, or for protocol 2's spelling of Outer.Inner: a call of a global, getattr, with
// a global and a text. Nothing is called, so the name of the function does not matter.
bool is_named(value::Cell cell) noexcept {
  constexpr int max_nesting = 8;  // of classes in classes
  for (int i = 0; i <= max_nesting; ++i) {
    if (kind_of(cell) == Value::Kind::global) return true;
    if (kind_of(cell) != Value::Kind::object || cell.part != value::whole_value) return false;
    const value::Object& call = *target_of<const value::Object>(cell);
    if (kind_of(call.callable) != Value::Kind::global || call.is_new_object || call.has_state ||
        call.elements != nullptr || call.items != nullptr || call.arguments.count != 2 ||
        kind_of(tuple_element(call.arguments, 1)) != Value::Kind::string)
      return false;
    cell = tuple_element(call.arguments, 0);
  }
  return false;
}

}  // namespace

bool Machine::global() {
  value::Cell made;
  return make_global(operand_.text, operand_.second_line, made) && push(made);
}

bool Machine::stack_global() {
  value::Cell* first = nullptr;
  if (!top(2, first)) return false;
  if (kind_of(first[0]) != string || kind_of(first[1]) != string)
    return fail(ErrorCode::unsafe_pickle, "opcode STACK_GLOBAL names " + describe(first[0]) +
                                              " and " + describe(first[1]) +
                                              ", expected two strings");
  value::Cell made;
  if (!make_global(tree_.text(first[0].payload, first[0].count),
                   tree_.text(first[1].payload, first[1].count), made))
    return false;
  stack_size_ -= 2;
  return push(made);
}

bool Machine::make_global(std::string_view module, std::string_view name, value::Cell& cell) {
  if (!bytes::is_utf8(module) || !bytes::is_utf8(name))
    return fail(ErrorCode::corrupt, "opcode " + opcode_name(*opcode_at_) + " names " +
                                        bytes::quote(name) + " of module " + bytes::quote(module) +
                                        ", which is not UTF-8");
  if (module.empty() || name.empty())
    return fail(ErrorCode::corrupt, "opcode " + opcode_name(*opcode_at_) + " names " +
                                        bytes::quote(name) + " of module " + bytes::quote(module) +
                                        ", of which one is empty");
  const value::Global* made = value::make_global(arena_, module, name, position(opcode_at_));
  if (made == nullptr) return fail_budget();
  tree_.add_global(made);
  cell = value::make_cell(Value::Kind::global, made);
  return true;
}

bool Machine::check_callable(const value::Cell& callable) {
  if (is_named(callable)) return true;
  return fail(ErrorCode::unsafe_pickle, "opcode " + opcode_name(*opcode_at_) + " calls " +
                                            describe(callable) + ", expected a named global");
}

bool Machine::check_kind(const value::Cell& cell, Value::Kind kind, const char* role) {
  if (kind_of(cell) == kind) return true;
  return fail(ErrorCode::corrupt, "opcode " + opcode_name(*opcode_at_) + " has " + describe(cell) +
                                      " for " + role + ", expected " + with_article(kind));
}

bool Machine::make_object(const value::Cell& callable, const value::Cell& arguments,
                          bool is_new_object, value::Cell& made) {
  if (!is_new_object && arguments.part == value::whole_value) {
    if (arguments.count != 0) read_numpy_bytes(callable, arguments);
    if (!make_filled_dict(callable, arguments, made) || !make_bytes(callable, arguments, made))
      return false;
    if (kind_of(made) != none) return true;
  }
  const std::array parts{callable, arguments};
  std::uint32_t depth = 0;
  if (!nest(parts.data(), parts.size(), depth)) return false;
  const value::Object* object =
      value::make_object(arena_, callable, arguments, is_new_object, depth, position(opcode_at_));
  if (object == nullptr) return fail_budget();
  made = value::make_cell(Value::Kind::object, object);
  return true;
}

bool Machine::call(bool is_new_object) {
  value::Cell* first = nullptr;
  value::Cell made;
  if (!top(2, first) || !check_callable(first[0]) || !check_kind(first[1], tuple, "arguments") ||
      !make_object(first[0], first[1], is_new_object, made))
    return false;
  stack_size_ -= 2;
  return push(made);
}

// Stores class, arguments and keywords as the equivalent call of older protocols.
bool Machine::call_with_keywords() {
  value::Cell* first = nullptr;
  if (!top(3, first) || !check_callable(first[0]) || !check_kind(first[1], tuple, "arguments") ||
      !check_kind(first[2], dict, "keyword arguments"))
    return false;
  value::Cell arguments;
  if (!make_tuple(first, 3, arguments)) return false;
  const value::Global* function =
      value::make_global(arena_, "copyreg", "__newobj_ex__", position(opcode_at_));
  if (function == nullptr) return fail_budget();
  value::Cell made;
  if (!make_object(value::make_cell(Value::Kind::global, function), arguments, false, made))
    return false;
  stack_size_ -= 3;
  return push(made);
}

// A class with arguments is called; without any, it is created without a call.
bool Machine::instance(const value::Cell& type, const value::Cell* first, std::uint32_t count) {
  value::Cell arguments;
  value::Cell made;
  return make_tuple(first, count, arguments) && make_object(type, arguments, count == 0, made) &&
         push(made);
}

bool Machine::instance_of_name() {
  value::Cell type;
  value::Cell* first = nullptr;
  std::uint32_t count = 0;
  return make_global(operand_.text, operand_.second_line, type) && pop_mark(first, count) &&
         instance(type, first, count);
}

bool Machine::instance_of_first() {
  value::Cell* first = nullptr;
  std::uint32_t count = 0;
  if (!pop_mark(first, count)) return false;
  if (count == 0) return fail(ErrorCode::corrupt, "opcode OBJ finds no class above the last mark");
  return check_callable(*first) && instance(*first, first + 1, count - 1);
}

bool Machine::push_persistent_id(const value::Cell& id) {
  std::uint32_t depth = 0;
  value::Cell made;
  return nest(&id, 1, depth) &&
         (value::make_persistent_id(arena_, id, depth, made) || fail_budget()) && push(made);
}

// Returns the class of an id ("module", class, file, source).
std::optional<value::Cell> Machine::class_of(const value::Cell& id) const {
  if (!limits_.has_modules || kind_of(id) != Value::Kind::tuple || id.part != value::whole_value ||
      id.count != 4)
    return std::nullopt;
  const value::Cell tag = tuple_element(id, 0);
  const value::Cell named = tuple_element(id, 1);
  const bool is_class =
      kind_of(tag) == string && is_named(named) && tree_.text(tag.payload, tag.count) == "module";
  return is_class ? std::optional(named) : std::nullopt;
}

bool Machine::persistent_id() {
  value::Cell* first = nullptr;
  if (!top(1, first)) return false;
  const value::Cell id = *first;
  if (const std::optional<value::Cell> named = class_of(id)) {
    *first = *named;
    return true;
  }
  --stack_size_;
  return push_persistent_id(id);
}

bool Machine::persistent_text() {
  const std::string_view line = operand_.text;
  for (const char byte : line)
    if ((byte & 0x80) != 0) return fail_line(line, "ASCII text");
  return push_persistent_id(value::make_cell(string, tree_.position_of(line.data()),
                                             static_cast<std::uint32_t>(line.size())));
}

bool Machine::build() {
  value::Cell* first = nullptr;
  std::uint32_t depth = 0;
  if (!top(2, first) || is_packed(first[0]) || !nest(first + 1, 1, depth)) return false;
  if (kind_of(first[0]) != object)
    return fail(ErrorCode::unsafe_pickle,
                "opcode BUILD sets the state of " + describe(first[0]) + ", expected an object");
  value::Object& built = *target_of<value::Object>(first[0]);
  if (built.has_state)
    return fail(ErrorCode::unsupported, "opcode BUILD sets the state of an object twice");
  built.state = first[1];
  built.has_state = true;
  built.depth = std::max(built.depth, depth);
  built.changed_at = built.state_at = position(opcode_at_);
  --stack_size_;
  return finish_array(built);
}

}  // namespace weightmap::pickle
