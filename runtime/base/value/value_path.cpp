#include <utility>

#include "runtime/base/value/module_state.hpp"
#include "weightmap/value.hpp"

namespace weightmap {
namespace {

using Kind = Value::Kind;
using Visit = std::function<void(const PathPart&, const Value&)>;

// Also calls `visit` for what state_dict() names without `_parameters`, `_buffers` or `_modules`.
void for_each_way(const Value& parent, const Visit& visit) {
  for_each_child(parent, visit);
  const std::optional<Value> graph_module = value::graph_module_state(parent);
  if (graph_module) for_each_child(*graph_module, visit);
  const std::optional<Value> state = graph_module ? graph_module : parent.state();
  const auto module = state ? value::module_state(*state) : std::nullopt;
  if (!module) return;
  for (const Value& section : {module->parameters, module->buffers, module->modules})
    for_each_child(section, visit);
}

class Search {
 public:
  explicit Search(std::string_view name) : name_(name) {}

  std::optional<FoundValue> run(const Value& root) {
    visit(root, name_);
    return std::move(found_);
  }

 private:
  // Bounds for hostile files in which a name leads along very many ways.
  static constexpr int most_steps = 1000;
  static constexpr std::size_t longest_name = 4096;

  // Returns the rest of the name behind this key; nullopt if the name does not begin with it.
  static std::optional<std::string_view> behind(std::string_view rest, const PathPart& part) {
    const std::string number = part.is_integer() ? std::to_string(part.integer()) : std::string();
    const std::string_view key = part.is_integer() ? std::string_view(number) : part.key();
    if (!rest.starts_with(key)) return std::nullopt;
    rest.remove_prefix(key.size());
    if (rest.empty()) return rest;
    if (rest.front() != '.' || rest.size() == 1) return std::nullopt;
    return rest.substr(1);
  }

  void visit(const Value& value, std::string_view rest) {
    if (name_.size() > longest_name || ++steps_ > most_steps) return;
    for_each_way(value, [&](const PathPart& part, const Value& child) {
      const std::optional<std::string_view> next = behind(rest, part);
      if (!next) return;
      path_.push_back(part);
      if (next->empty())
        found_ = FoundValue{child, path_};
      else
        visit(child, *next);
      path_.pop_back();
    });
  }

  std::string_view name_;
  std::vector<PathPart> path_;
  std::optional<FoundValue> found_;
  int steps_ = 0;
};

}  // namespace

void for_each_child(const Value& parent, const Visit& visit) {
  if (parent.kind() == Kind::list || parent.kind() == Kind::tuple) {
    std::int64_t index = 0;
    for (const Value& element : parent.elements()) visit(PathPart(index++), element);
    return;
  }
  for (const auto& [key, value] : parent.items()) {
    if (const auto text = key.string())
      visit(PathPart(*text), value);
    else if (const auto number = key.integer())
      visit(PathPart(*number), value);
  }
  if (const auto state = parent.state(); state && state->kind() == Kind::dict)
    for_each_child(*state, visit);
}

std::optional<FoundValue> find_value(const Value& root, std::string_view name) {
  return Search(name).run(root);
}

std::optional<Value> find_value(const Value& root, std::span<const PathPart> path) {
  Value at = root;
  for (const PathPart& wanted : path) {
    std::optional<Value> next;
    for_each_way(at, [&](const PathPart& part, const Value& child) {
      if (part == wanted) next = child;
    });
    if (!next) return std::nullopt;
    at = *next;
  }
  return at;
}

std::string name_of(std::span<const PathPart> path) {
  std::string name;
  for (const PathPart& part : path) {
    if (&part != path.data()) name += '.';
    if (part.is_integer())
      name += std::to_string(part.integer());
    else
      name += part.key();
  }
  return name;
}

std::string type_name_of(const Value& value) {
  switch (value.kind()) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::big_integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return "str";
    case Kind::byte_array:
      return "bytearray";
    case Kind::frozen_set:
      return "frozenset";
    case Kind::object:
      return value.callable().kind() == Kind::global ? type_name_of(value.callable()) : "object";
    case Kind::global:
      return std::string(value.module()) + "." + std::string(value.name());
    default:
      return std::string(to_string(value.kind()));
  }
}

}  // namespace weightmap
