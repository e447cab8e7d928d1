#include "tools/value_tree.hpp"

#include <cmath>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "tools/support/text.hpp"
#include "tools/value_text.hpp"
#include "weightmap/value_path.hpp"

namespace weightmap::cli {
namespace {

using Kind = Value::Kind;

constexpr std::size_t deepest = 200;  // levels; deeper ones are named, not shown
constexpr std::size_t most_children = 40;
constexpr std::size_t first_children = 24;  // of more than that

// The parts of a value with what stands before each of them.
using Visit = std::function<void(const std::string& label, const Value& part)>;

void visit_items(const Value& value, const Visit& visit) {
  for (const auto& [key, part] : value.items()) visit(key_text(key), part);
}

void visit_elements(const Value& value, const Visit& visit) {
  const bool is_numbered = value.kind() == Kind::list || value.kind() == Kind::tuple;
  std::size_t index = 0;
  for (const Value& part : value.elements()) {
    visit(is_numbered ? std::to_string(index) : "-", part);
    ++index;
  }
}

void visit_parts(const Value& value, const Visit& visit) {
  if (value.kind() == Kind::object && value.arguments().size() > 0)
    visit("(arguments)", value.arguments());
  visit_elements(value, visit);
  visit_items(value, visit);
  const std::optional<Value> state = value.state();
  if (state && state->kind() == Kind::dict)
    visit_items(*state, visit);
  else if (state)
    visit("(state)", *state);
}

std::size_t count_parts(const Value& value) {
  std::size_t parts = 0;
  visit_parts(value, [&parts](const std::string&, const Value&) { ++parts; });
  return parts;
}

// Where containers were reached first.
class Seen {
 public:
  // The name of the place if the container was there before; else remembers it under `name`.
  const std::string* find_or_add(const Value& value, const std::string& name) {
    if (!value.may_be_shared()) return nullptr;
    const auto [known, is_new] = names_.try_emplace(value, name);
    return is_new ? nullptr : &known->second;
  }

 private:
  struct Hash {
    std::size_t operator()(const Value& value) const noexcept { return value.hash(); }
  };
  struct Same {
    bool operator()(const Value& a, const Value& b) const noexcept { return a.is_same_as(b); }
  };
  std::unordered_map<Value, std::string, Hash, Same> names_;
};

class TreePrinter {
 public:
  TreePrinter(Output& out, const Checkpoint& checkpoint, const TreeLimits& limits)
      : out_(out), checkpoint_(checkpoint), limits_(limits) {}

  void print(const std::string& label, const Value& value, const std::string& name,
             std::size_t level) {
    if (out_.failed()) return;
    const std::string indent(2 * level, ' ');
    const std::string start = indent + label + (label.empty() ? "" : label == "-" ? " " : ": ");
    if (const std::optional<std::string> tensor = tensor_text(value, name))
      return write(start + *tensor);
    if (const std::optional<std::string> line = one_line(value)) return write(start + *line);
    const std::string* const before = seen_.find_or_add(value, name);
    if (before != nullptr) return write(start + head_of(value) + ", the same as " + shown(*before));
    write(start + head_of(value));
    print_parts(value, name, level + 1);
  }

 private:
  static std::string shown(const std::string& name) {
    return name.empty() ? "the root" : printable(name);
  }

  void write(const std::string& line) { out_.write(line + "\n"); }

  std::optional<std::string> tensor_text(const Value& value, const std::string& name) const {
    if (value.kind() != Kind::object) return std::nullopt;
    const std::optional<NamedTensor> tensor = checkpoint_.tensor(value);
    if (!tensor) return std::nullopt;
    const TensorView& view = tensor->view;
    return std::string(to_string(view.dtype())) + " " + dims(view.shape()) + ", " +
           human_bytes(view.nbytes()) +
           (tensor->name == name ? "" : ", the same as " + printable(tensor->name));
  }

  void print_parts(const Value& value, const std::string& name, std::size_t level) {
    if (limits_.depth && level > *limits_.depth) return;
    const std::string indent(2 * level, ' ');
    if (level > deepest) return write(indent + "... deeper than " + std::to_string(deepest));
    const std::size_t parts = count_parts(value);
    const std::size_t shown_parts = limits_.all || parts <= most_children ? parts : first_children;
    std::size_t printed = 0;
    visit_parts(value, [&](const std::string& label, const Value& part) {
      if (printed++ < shown_parts)
        print(label, part, name.empty() ? label : name + "." + label, level);
    });
    if (shown_parts < parts)
      write(indent + "... " + std::to_string(parts - shown_parts) + " more, with --all");
  }

  Output& out_;
  const Checkpoint& checkpoint_;
  const TreeLimits& limits_;
  Seen seen_;
};

class JsonMaker {
 public:
  explicit JsonMaker(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  Json make(const Value& value, const std::string& name, std::size_t level) {
    switch (value.kind()) {
      case Kind::none:
        return nullptr;
      case Kind::boolean:
        return *value.boolean();
      case Kind::integer:
        return *value.integer();
      case Kind::real:
        if (std::isfinite(*value.real())) return *value.real();
        break;
      case Kind::string:
        return *value.string();
      case Kind::object:
        if (const std::optional<NamedTensor> tensor = checkpoint_.tensor(value))
          return {{"$tensor", tensor->name},
                  {"dtype", to_string(tensor->view.dtype())},
                  {"shape", tensor->view.shape()}};
        break;
      default:
        break;
    }
    const bool is_container = value.kind() == Kind::list || value.kind() == Kind::tuple ||
                              value.kind() == Kind::dict || value.kind() == Kind::object ||
                              value.kind() == Kind::set || value.kind() == Kind::frozen_set;
    if (!is_container) return {{"$" + type_name_of(value), one_line(value).value_or("")}};
    if (const std::string* const before = seen_.find_or_add(value, name))
      return {{"$same_as", *before}};
    if (level > deepest) return {{"$deeper_than", deepest}};
    return container(value, name, level + 1);
  }

 private:
  Json container(const Value& value, const std::string& name, std::size_t level) {
    switch (value.kind()) {
      case Kind::list:
      case Kind::tuple:
        return elements(value, name, level);
      case Kind::dict:
        return has_plain_keys(value) ? plain_dict(value, name, level)
                                     : Json{{"$dict", items(value, name, level)}};
      case Kind::object:
        return object(value, name, level);
      default:
        return {{"$" + type_name_of(value), elements(value, name, level)}};
    }
  }

  static bool has_plain_keys(const Value& dict) {
    for (const auto& [key, part] : dict.items()) {
      const std::optional<std::string_view> text = key.string();
      if (!text || text->starts_with("$")) return false;
    }
    return true;
  }

  static std::string below(const std::string& name, const std::string& key) {
    return name.empty() ? key : name + "." + key;
  }

  Json elements(const Value& value, const std::string& name, std::size_t level) {
    Json list = Json::array();
    for (const Value& part : value.elements())
      list.push_back(make(part, below(name, std::to_string(list.size())), level));
    return list;
  }

  Json plain_dict(const Value& value, const std::string& name, std::size_t level) {
    Json dict = Json::object();
    for (const auto& [key, part] : value.items()) {
      const std::string text(*key.string());
      dict[text] = make(part, below(name, text), level);
    }
    return dict;
  }

  Json items(const Value& value, const std::string& name, std::size_t level) {
    Json list = Json::array();
    for (const auto& [key, part] : value.items())
      list.push_back({make(key, name, level), make(part, below(name, key_text(key)), level)});
    return list;
  }

  Json object(const Value& value, const std::string& name, std::size_t level) {
    Json described = {{"$object", type_name_of(value)}};
    if (const std::optional<std::string> line = one_line(value)) described["text"] = *line;
    if (value.arguments().size() > 0) described["arguments"] = make(value.arguments(), name, level);
    if (value.size() > 0) described["elements"] = elements(value, name, level);
    if (value.item_count() > 0) described["items"] = items(value, name, level);
    if (const std::optional<Value> state = value.state())
      described["state"] = make(*state, name, level);
    return described;
  }

  const Checkpoint& checkpoint_;
  Seen seen_;
};

}  // namespace

void print_tree(Output& out, const Checkpoint& checkpoint, const NamedValue& from,
                const TreeLimits& limits) {
  const std::string label = from.name.empty() ? "" : printable(from.name);
  TreePrinter(out, checkpoint, limits).print(label, from.value, from.name, 0);
}

Json describe(const Checkpoint& checkpoint, const NamedValue& from) {
  return JsonMaker(checkpoint).make(from.value, from.name, 0);
}

}  // namespace weightmap::cli
