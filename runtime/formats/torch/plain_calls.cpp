#include "runtime/formats/torch/plain_calls.hpp"

#include <algorithm>
#include <string_view>

#include "runtime/formats/torch/names.hpp"

namespace weightmap::torch {
namespace {

using Kind = Value::Kind;

bool is_number(Kind kind) noexcept {
  return kind == Kind::boolean || kind == Kind::integer || kind == Kind::big_integer ||
         kind == Kind::real;
}

bool cannot_be_walked(Kind kind) noexcept { return is_number(kind) || kind == Kind::none; }

bool has_no_hash(Kind kind) noexcept {
  return kind == Kind::list || kind == Kind::dict || kind == Kind::set || kind == Kind::byte_array;
}

bool is_no_size(Kind kind) noexcept {
  return kind == Kind::none || kind == Kind::real || kind == Kind::string || kind == Kind::bytes ||
         kind == Kind::tuple || has_no_hash(kind);
}

// Checks the elements of a list or tuple that has not changed since the call.
bool has_element(const Value& argument, const Value& call, bool (*is_wrong)(Kind) noexcept) {
  if ((argument.kind() != Kind::list && argument.kind() != Kind::tuple) ||
      argument.changed_at() > call.position())
    return false;
  return std::ranges::any_of(argument.elements(),
                             [&](const Value& element) { return is_wrong(element.kind()); });
}

struct Call {
  const Value& object;
  Value arguments;
  std::size_t count() const noexcept { return arguments.size(); }
  Kind first() const noexcept { return arguments[0].kind(); }
};

bool fails_as_set(const Call& call) {
  return call.count() > 1 ||
         (call.count() == 1 && (cannot_be_walked(call.first()) ||
                                has_element(call.arguments[0], call.object, has_no_hash)));
}

bool fails_as_size(const Call& call) {
  return call.count() > 1 || (call.count() == 1 &&
                              (cannot_be_walked(call.first()) ||
                               (call.first() == Kind::string && call.arguments[0].string() != "") ||
                               has_element(call.arguments[0], call.object, is_no_size)));
}

// A number is a length; only Python knows whether it has enough memory.
bool fails_as_byte_array(const Call& call) {
  if (call.count() == 0) return false;
  return call.count() > 3 || call.first() == Kind::none || call.first() == Kind::real ||
         (call.count() == 1 && call.first() == Kind::string);
}

bool fails(std::string_view module, std::string_view name, const Call& call) {
  if (module == "builtins" || module == "__builtin__") {
    if (name == "set" || name == "frozenset") return fails_as_set(call);
    return name == "bytearray" && fails_as_byte_array(call);
  }
  if (module == "collections") {
    if (name == "OrderedDict")
      return call.count() > 1 || (call.count() == 1 && cannot_be_walked(call.first()));
    return name == "Counter" &&
           (call.count() > 1 || (call.count() == 1 && is_number(call.first())));
  }
  return is_size(call.object.callable()) && fails_as_size(call);
}

}  // namespace

std::string impossible_call(const Value& object) {
  const Value callable = object.callable();
  const std::string_view module = callable.module();
  const std::string_view name = callable.name();
  if (dtype_global(module, name))
    return "the pickle calls " + qualified_name(module, name) +
           ", which is a dtype and cannot be called";
  // A class that is created without a call accepts any arguments.
  if (object.is_new_object() || !fails(module, name, {object, object.arguments()})) return {};
  return "the pickle calls " + qualified_name(module, name) + " with arguments that it cannot take";
}

std::optional<Value> contents_of_call(const Value& object) noexcept {
  const Value callable = object.callable();
  const std::string_view module = callable.module();
  const std::string_view name = callable.name();
  const bool is_deque = module == "collections" && name == "deque";
  const bool is_builtin = module == "builtins" || module == "__builtin__";
  const bool is_set =
      is_builtin && (name == "set" || name == "frozenset" || name == "tuple");  // paddle: tuple
  const std::size_t count = object.arguments().size();
  if (object.is_new_object() || count == 0 || !(is_deque ? count <= 2 : is_set && count == 1))
    return std::nullopt;
  const Value contents = object.arguments()[0];
  const bool has_elements = contents.kind() == Kind::list || contents.kind() == Kind::tuple ||
                            contents.kind() == Kind::set || contents.kind() == Kind::frozen_set;
  if (!has_elements || contents.changed_at() > object.position()) return std::nullopt;
  return contents;
}

}  // namespace weightmap::torch
