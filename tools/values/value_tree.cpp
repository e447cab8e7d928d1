#include "tools/values/value_tree.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "tools/support/files.hpp"
#include "tools/support/text.hpp"
#include "tools/values/numpy_value.hpp"
#include "tools/values/value_text.hpp"
#include "weightmap/chunks.hpp"

namespace weightmap::cli {
namespace {

using Kind = Value::Kind;

constexpr std::size_t deepest = 200;  // levels; deeper values are named, not shown
constexpr std::size_t most_children = 40;
constexpr std::size_t first_children = 24;  // shown if there are more

constexpr std::size_t longest_label = 200;  // bytes; one key may occur in many places

// The place where a value was reached. A chain, so that long names take memory only while shown.
struct Place {
  std::shared_ptr<const Place> above;
  std::string label;

  std::string name() const {
    const std::string start = above ? above->name() : "";
    return start.empty() ? label : start + "." + label;
  }
};
using PlaceOf = std::shared_ptr<const Place>;

PlaceOf below(const PlaceOf& place, std::string label) {
  return std::make_shared<const Place>(Place{place, std::move(label)});
}

// A tensor in however many chunks.
struct TensorFacts {
  std::string_view name;
  DType dtype;
  std::vector<std::int64_t> shape;

  std::uint64_t nbytes() const {
    std::uint64_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::uint64_t>(size);
    return bytes_of(dtype, count);
  }
};

std::optional<TensorFacts> facts_of(const Checkpoint& checkpoint, std::string_view name) {
  Result<WholeTensor> whole = whole_tensor(checkpoint, name);
  if (!whole) return std::nullopt;
  return TensorFacts{name, whole->dtype, std::move(whole->sizes)};
}

std::optional<TensorFacts> tensor_at(const Checkpoint& checkpoint, const Value& value) {
  if (const std::optional<NamedTensor> tensor = checkpoint.tensor(value)) {
    const std::span<const std::int64_t> shape = tensor->view.shape();
    return TensorFacts{tensor->name, tensor->view.dtype(), {shape.begin(), shape.end()}};
  }
  const std::optional<std::string_view> name = chunked_name(checkpoint, value);
  if (!name) return std::nullopt;
  return facts_of(checkpoint, *name);
}

std::string facts_text(const TensorFacts& tensor) {
  return std::string(to_string(tensor.dtype)) + " " + dims(tensor.shape) + ", " +
         human_bytes(tensor.nbytes());
}

Json described(const TensorFacts& tensor, std::string name) {
  return {
      {"$tensor", std::move(name)}, {"dtype", to_string(tensor.dtype)}, {"shape", tensor.shape}};
}

std::size_t shown_of(std::size_t parts, const TreeLimits& limits) {
  return limits.all || parts <= most_children ? parts : first_children;
}

std::string more_text(std::size_t parts) {
  return "  ... " + std::to_string(parts) + " more, with --all\n";
}

// Visits the parts of a value with their labels.
using Visit = std::function<void(const std::string& label, const Value& part)>;

void visit_items(const Value& value, const Visit& visit) {
  for (const auto& [key, part] : value.items()) visit(key_text(key, longest_label), part);
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

// The first places of containers.
class Seen {
 public:
  // Returns that place if the container was seen before; otherwise remembers `place`.
  const Place* find_or_add(const Value& value, const PlaceOf& place) {
    if (!value.may_be_shared()) return nullptr;
    const auto [known, is_new] = places_.try_emplace(value, place);
    return is_new ? nullptr : known->second.get();
  }

 private:
  struct Hash {
    std::size_t operator()(const Value& value) const noexcept { return value.hash(); }
  };
  struct Same {
    bool operator()(const Value& a, const Value& b) const noexcept { return a.is_same_as(b); }
  };
  std::unordered_map<Value, PlaceOf, Hash, Same> places_;
};

std::string label_of(const NamedValue& from) {
  return from.name.empty() ? "" : printable(from.name);
}

class TreePrinter {
 public:
  TreePrinter(Output& out, const Checkpoint& checkpoint, const TreeLimits& limits)
      : out_(out), checkpoint_(checkpoint), limits_(limits) {}

  void print(const Value& value, const PlaceOf& place, std::size_t level) {
    if (out_.failed()) return;
    const std::string start = std::string(2 * level, ' ') + before(place->label);
    if (const std::optional<std::string> tensor = tensor_text(value, *place))
      return write(start + *tensor);
    if (const std::optional<std::string> line = one_line(value)) return write(start + *line);
    if (const Place* const first = seen_.find_or_add(value, place))
      return write(start + head_of(value) + ", the same as " + shown(*first));
    write(start + head_of(value));
    print_parts(value, place, level + 1);
  }

 private:
  static std::string before(const std::string& label) {
    return label.empty() ? "" : label == "-" ? "- " : label + ": ";
  }

  static std::string shown(const Place& place) {
    const std::string name = place.name();
    return name.empty() ? "the root" : name;
  }

  void write(const std::string& line) { out_.write(line + "\n"); }

  std::optional<std::string> tensor_text(const Value& value, const Place& place) const {
    if (value.kind() != Kind::object) return std::nullopt;
    const std::optional<TensorFacts> tensor = tensor_at(checkpoint_, value);
    if (!tensor) return std::nullopt;
    return facts_text(*tensor) +
           (printable(tensor->name) == place.name() ? "" : ", named " + printable(tensor->name));
  }

  void print_parts(const Value& value, const PlaceOf& place, std::size_t level) {
    if (limits_.depth && level > *limits_.depth) return;
    const std::string indent(2 * level, ' ');
    if (level > deepest) return write(indent + "... deeper than " + std::to_string(deepest));
    const std::size_t parts = count_parts(value);
    const std::size_t shown_parts = shown_of(parts, limits_);
    std::size_t printed = 0;
    visit_parts(value, [&](const std::string& label, const Value& part) {
      if (printed++ < shown_parts) print(part, below(place, label), level);
    });
    if (shown_parts < parts)
      out_.write(std::string(indent.size() - 2, ' ') + more_text(parts - shown_parts));
  }

  Output& out_;
  const Checkpoint& checkpoint_;
  const TreeLimits& limits_;
  Seen seen_;
};

class JsonMaker {
 public:
  explicit JsonMaker(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // Returns false if a hostile file repeats long texts so often that their document exceeds memory.
  bool has_room() const noexcept { return left_ > 0; }

  Json make(const Value& value, const PlaceOf& place, std::size_t level) {
    switch (value.kind()) {
      case Kind::none:
        return nullptr;
      case Kind::boolean:
        return *value.boolean();
      case Kind::integer:
        return *value.integer();
      case Kind::string:
        return text(*value.string());
      case Kind::list:
      case Kind::tuple:
      case Kind::dict:
      case Kind::set:
      case Kind::frozen_set:
        return container(value, place, level);
      case Kind::object:
        if (const std::optional<TensorFacts> tensor = tensor_at(checkpoint_, value))
          return described(*tensor, text(tensor->name));
        if (type_name_of(value) == "bytes") break;  // written by protocol 2
        return container(value, place, level);
      default:
        break;
    }
    if (value.kind() == Kind::real && std::isfinite(*value.real())) return *value.real();
    return {{text("$" + type_name_of(value)), one_line(value).value_or("")}};
  }

 private:
  static constexpr std::uint64_t most_text = std::uint64_t{256} << 20;

  std::string text(std::string_view text) {
    left_ -= std::min<std::uint64_t>(left_, text.size());
    return has_room() ? std::string(text) : std::string();
  }

  Json container(const Value& value, const PlaceOf& place, std::size_t level) {
    if (const Place* const first = seen_.find_or_add(value, place))
      return {{"$same_as", text(first->name())}};
    if (level > deepest) return {{"$deeper_than", deepest}};
    if (!has_room()) return nullptr;
    switch (value.kind()) {
      case Kind::list:
      case Kind::tuple:
        return elements(value, place, level + 1);
      case Kind::dict:
        return has_plain_keys(value) ? plain_dict(value, place, level + 1)
                                     : Json{{"$dict", items(value, place, level + 1)}};
      case Kind::object:
        return object(value, place, level + 1);
      default:
        return {{"$" + type_name_of(value), elements(value, place, level + 1)}};
    }
  }

  static bool has_plain_keys(const Value& dict) {
    for (const auto& [key, part] : dict.items()) {
      const std::optional<std::string_view> text = key.string();
      if (!text || text->starts_with("$")) return false;
    }
    return true;
  }

  static PlaceOf below(const PlaceOf& place, const Value& key) {
    return cli::below(place, key_text(key, longest_label));
  }

  Json elements(const Value& value, const PlaceOf& place, std::size_t level) {
    Json list = Json::array();
    for (const Value& part : value.elements())
      list.push_back(make(part, cli::below(place, std::to_string(list.size())), level));
    return list;
  }

  Json plain_dict(const Value& value, const PlaceOf& place, std::size_t level) {
    Json dict = Json::object();
    // Avoids operator[], which compares all earlier keys; the keys of one dict differ anyway.
    auto& members = dict.get_ref<Json::object_t&>();
    for (const auto& [key, part] : value.items())
      members.emplace_back(text(*key.string()), make(part, below(place, key), level));
    return dict;
  }

  Json items(const Value& value, const PlaceOf& place, std::size_t level) {
    Json list = Json::array();
    for (const auto& [key, part] : value.items())
      list.push_back(Json::array({make(key, place, level), make(part, below(place, key), level)}));
    return list;
  }

  Json object(const Value& value, const PlaceOf& place, std::size_t level) {
    Json described = {{"$object", text(type_name_of(value))}};
    if (const std::optional<std::string> line = one_line(value)) described["text"] = text(*line);
    if (value.arguments().size() > 0)
      described["arguments"] = make(value.arguments(), place, level);
    if (value.size() > 0) described["elements"] = elements(value, place, level);
    if (value.item_count() > 0) described["items"] = items(value, place, level);
    if (const std::optional<Value> state = value.state())
      described["state"] = make(*state, place, level);
    return described;
  }

  const Checkpoint& checkpoint_;
  Seen seen_;
  std::uint64_t left_ = most_text;
};

}  // namespace

std::size_t count_arrays(const Checkpoint& checkpoint) {
  using Path = std::vector<PathPart>;
  std::size_t found = 0;
  Seen seen;
  const PlaceOf anywhere = below(nullptr, {});
  std::vector<std::pair<Value, Path>> left = {{checkpoint.root(), {}}};
  while (!left.empty()) {
    const Value value = left.back().first;
    const Path path = std::move(left.back().second);
    left.pop_back();
    if (seen.find_or_add(value, anywhere) != nullptr || checkpoint.tensor(value)) continue;
    if (numpy_array_parts(value)) {
      if (!checkpoint.get_path(path)) ++found;
      continue;
    }
    for_each_child(value, [&](const PathPart& part, const Value& child) {
      if (child.kind() == Kind::object || child.size() + child.item_count() > 0)
        left.emplace_back(child, path).second.push_back(part);
    });
  }
  return found;
}

std::vector<std::string_view> tensors_apart(const Checkpoint& checkpoint, const std::string& path) {
  const Format format = checkpoint.info().format;
  const bool are_apart = is_header_and_elements(format) || format == Format::npz ||
                         format == Format::pt2 ||
                         (format != Format::dcp && files_of(checkpoint).size() > 1);
  if (!are_apart) return {};
  std::vector<std::string_view> names = whole_names(checkpoint);
  std::erase_if(names, [below = path + "."](std::string_view name) {
    return below.size() > 1 && !(std::string(name) + ".").starts_with(below);
  });
  return names;
}

void print_tensors(Output& out, const Checkpoint& checkpoint,
                   const std::vector<std::string_view>& names, const TreeLimits& limits) {
  if (names.empty()) return;
  out.write(count(names.size(), "tensor") + "\n");
  if (limits.depth == 0U) return;
  const std::size_t shown = shown_of(names.size(), limits);
  for (std::size_t i = 0; i < shown && !out.failed(); ++i)
    if (const std::optional<TensorFacts> tensor = facts_of(checkpoint, names[i]))
      out.write("  " + printable(names[i]) + ": " + facts_text(*tensor) + "\n");
  if (shown < names.size()) out.write(more_text(names.size() - shown));
}

Json describe_tensors(const Checkpoint& checkpoint, const std::vector<std::string_view>& names) {
  Json list = Json::array();
  for (const std::string_view name : names)
    if (const std::optional<TensorFacts> tensor = facts_of(checkpoint, name))
      list.push_back(described(*tensor, std::string(name)));
  return list;
}

void print_tree(Output& out, const Checkpoint& checkpoint, const NamedValue& from,
                const TreeLimits& limits) {
  TreePrinter(out, checkpoint, limits).print(from.value, below(nullptr, label_of(from)), 0);
}

Result<Json> describe(const Checkpoint& checkpoint, const NamedValue& from) {
  JsonMaker maker(checkpoint);
  Json document = maker.make(from.value, below(nullptr, label_of(from)), 0);
  if (maker.has_room()) return document;
  return failure(ErrorCode::limit_exceeded,
                 "the values have over 256 MiB of text; choose a part of them by its path");
}

}  // namespace weightmap::cli
