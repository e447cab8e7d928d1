#include "tools/values/value_difference.hpp"

#include <algorithm>
#include <bit>
#include <compare>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/values/numpy_value.hpp"
#include "tools/values/value_text.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/inspect.hpp"

namespace weightmap::cli {
namespace {

using Kind = Value::Kind;

// A name that Python 3 pickles otherwise in protocols 0 to 2, and numpy 2 otherwise than numpy 1.
std::string present_name(const Value& global) {
  std::string name = std::string(global.module()) + "." + std::string(global.name());
  if (name == "__builtin__.xrange") return "builtins.range";
  for (const auto& [before, now] : {std::pair("__builtin__.", "builtins."),
                                    {"copy_reg.", "copyreg."},
                                    {"numpy.core.", "numpy._core."}})
    if (name.starts_with(before)) return now + name.substr(std::string_view(before).size());
  return name;
}

// The remaining work of a comparison. A hostile file of some megabytes leads to more pairs of
// values than can be compared.
class Budget {
 public:
  void spend(std::uint64_t work) noexcept { left_ -= std::min(left_, work); }
  void spend_all() noexcept { left_ = 0; }
  bool is_spent() const noexcept { return left_ == 0; }

 private:
  std::uint64_t left_ = std::uint64_t{1} << 26;
};

// A total order of values by their content. Values that are equal in it are identical to Python.
class ByContent {
 public:
  explicit ByContent(Budget& budget) : budget_(&budget) {}

  bool operator()(const Value& a, const Value& b) const { return compare(a, b, 0) < 0; }

  // Precondition: both have the same kind, and no parts.
  std::strong_ordering compare_atoms(const Value& a, const Value& b) const {
    switch (a.kind()) {
      case Kind::boolean:
        return *a.boolean() <=> *b.boolean();
      case Kind::integer:
        return *a.integer() <=> *b.integer();
      case Kind::real:
        return std::bit_cast<std::uint64_t>(*a.real()) <=> std::bit_cast<std::uint64_t>(*b.real());
      case Kind::string:
        return compare_bytes(std::as_bytes(std::span(*a.string())),
                             std::as_bytes(std::span(*b.string())));
      case Kind::big_integer:
        return compare_bytes(*a.big_integer(), *b.big_integer());
      case Kind::bytes:
      case Kind::byte_array:
        return compare_bytes(*a.bytes(), *b.bytes());
      case Kind::global:
        return present_name(a) <=> present_name(b);
      default:
        return std::strong_ordering::equal;
    }
  }

 private:
  static constexpr std::size_t deepest_key = 16;

  std::strong_ordering compare_bytes(std::span<const std::byte> a,
                                     std::span<const std::byte> b) const {
    constexpr std::size_t at_once = 64;
    const std::size_t common = std::min(a.size(), b.size());
    budget_->spend(common / at_once);
    const int order = common == 0 ? 0 : std::memcmp(a.data(), b.data(), common);
    return order != 0 ? order <=> 0 : a.size() <=> b.size();
  }

  std::strong_ordering compare(const Value& a, const Value& b, std::size_t level) const {
    budget_->spend(1);
    if (level > deepest_key) budget_->spend_all();
    if (budget_->is_spent()) return std::strong_ordering::equal;
    if (a.kind() != b.kind()) return a.kind() <=> b.kind();
    if (a.kind() == Kind::object) {
      if (const std::strong_ordering order = compare(a.callable(), b.callable(), level + 1);
          order != 0)
        return order;
      return compare(a.arguments(), b.arguments(), level + 1);
    }
    if (const std::strong_ordering order = a.size() <=> b.size(); order != 0) return order;
    auto in_b = b.elements().begin();
    for (const Value& element : a.elements()) {
      if (const std::strong_ordering order = compare(element, *in_b, level + 1); order != 0)
        return order;
      ++in_b;
    }
    return compare_atoms(a, b);
  }

  Budget* budget_;
};

// The items of a dict or object, in file order. The last of two with one key counts, as in Python.
class Items {
 public:
  Items(const Value& value, Budget& budget) : places_(ByContent(budget)) {
    for (const auto& [key, part] : value.items()) {
      const auto [known, is_new] = places_.try_emplace(key, items_.size());
      if (is_new)
        items_.emplace_back(key, part);
      else
        items_[known->second].second = part;
    }
  }

  const std::vector<std::pair<Value, Value>>& all() const noexcept { return items_; }
  const Value* find(const Value& key) const {
    const auto found = places_.find(key);
    return found == places_.end() ? nullptr : &items_[found->second].second;
  }

 private:
  std::vector<std::pair<Value, Value>> items_;
  std::map<Value, std::size_t, ByContent> places_;
};

class Comparer {
 public:
  Comparer(const Checkpoint& old, const Checkpoint& now) : old_(old), now_(now) {}

  Result<ValueDifferences> compare() {
    TRY_ASSIGN(const Value old, old_.values());
    TRY_ASSIGN(const Value now, now_.values());
    compare(old, now, Place{});
    if (!budget_.is_spent()) return std::move(found_);
    return failure(ErrorCode::limit_exceeded,
                   "the values are nested too deeply, or lead to one another in too many ways, to "
                   "be compared; with a pattern only tensors are");
  }

 private:
  static constexpr std::size_t deepest = 200;        // levels
  static constexpr std::size_t longest_label = 200;  // bytes
  using Pair = std::pair<Value, Value>;

  // The current place of a comparison. It becomes text only where values differ.
  struct Place {
    const Place* above = nullptr;
    std::string_view label;
    const Value* key = nullptr;             // instead of the label
    std::optional<std::size_t> index = {};  // instead of the label
    std::size_t level = 0;

    std::string name() const {
      std::vector<std::string> labels;
      for (const Place* place = this; place->above != nullptr; place = place->above)
        labels.push_back(place->own_label());
      std::string text;
      for (auto at = labels.rbegin(); at != labels.rend(); ++at)
        text += (text.empty() ? "" : ".") + *at;
      return text;
    }

   private:
    std::string own_label() const {
      if (key != nullptr) return key_text(*key, longest_label);
      return index ? std::to_string(*index) : std::string(label);
    }
  };

  static Place below(const Place& place, std::string_view label) {
    return {&place, label, nullptr, {}, place.level + 1};
  }
  static Place below(const Place& place, const Value& key) {
    return {&place, {}, &key, {}, place.level + 1};
  }
  static Place below(const Place& place, std::size_t index) {
    return {&place, {}, nullptr, index, place.level + 1};
  }

  void compare(const Value& old, const Value& now, const Place& place) {
    budget_.spend(1);
    if (place.level > deepest) budget_.spend_all();
    if (budget_.is_spent()) return;
    if (compare_as_tensors(old, now, place) || compare_as_arrays(old, now, place)) return;
    const std::optional<Value> was = elements_of_set(old);
    const std::optional<Value> is = elements_of_set(now);
    if (was && is && is_frozen(old) == is_frozen(now))
      return are_equal_sets(*was, *is) ? void() : change(old, now, place);
    if (old.kind() != now.kind() || is_other_object(old, now)) {
      // A dict may have become an OrderedDict.
      const bool have_items = old.item_count() > 0 && now.item_count() > 0;
      if (have_items && !meets(old, now)) return;
      change(old, now, place);
      if (have_items) compare_items(old, now, place);
      return;
    }
    switch (old.kind()) {
      case Kind::tuple:
      case Kind::list:
      case Kind::dict:
      case Kind::object:
        return meets(old, now) ? compare_parts(old, now, place) : void();
      case Kind::persistent_id:
        return are_equal_storages(old, now) ? void() : change(old, now, place);
      default:
        if (ByContent(budget_).compare_atoms(old, now) != 0) change(old, now, place);
    }
  }

  static bool is_tensor(const Checkpoint& checkpoint, const Value& value) {
    return value.kind() == Kind::object &&
           (checkpoint.tensor(value) || chunked_name(checkpoint, value));
  }

  // Returns false if neither value is a tensor.
  bool compare_as_tensors(const Value& old, const Value& now, const Place& place) {
    const bool was = is_tensor(old_, old);
    const bool is = is_tensor(now_, now);
    if (was != is) change(old, now, place);
    if (was && is) compare_scales(old, now, place);
    return was || is;
  }

  // Arrays are equal if their elements are, however they were pickled. Returns false if one of the
  // values is none.
  bool compare_as_arrays(const Value& old, const Value& now, const Place& place) {
    const std::optional<NumpyParts> was = numpy_array_parts(old);
    const std::optional<NumpyParts> is = numpy_array_parts(now);
    if (!was || !is) return false;
    if (is_listed(place) || !meets(old, now)) return true;
    const std::optional<NumpyValue> a = numpy_array(old);
    const std::optional<NumpyValue> b = numpy_array(now);
    if (a && b) {
      const Result<bool> same = same_bits(a->view(), b->view());
      if (!same || !*same) change(old, now, place);
      return true;
    }
    compare(was->dtype, is->dtype, below(place, "dtype"));
    compare(was->shape, is->shape, below(place, "shape"));
    const auto old_bytes = was->content.bytes();
    const auto now_bytes = is->content.bytes();
    if (!old_bytes || !now_bytes)
      compare(was->content, is->content, below(place, "elements"));
    else if (!std::ranges::equal(*old_bytes, *now_bytes) || was->is_fortran != is->is_fortran)
      change(old, now, place);
    return true;
  }

  // True if one of the files has a tensor at this place, which the table of tensors compares.
  bool is_listed(const Place& place) const {
    std::vector<PathPart> path;
    for (const Place* at = &place; at->above != nullptr; at = at->above) {
      if (at->key == nullptr && at->index)
        path.emplace_back(*at->index);
      else if (const auto text = at->key != nullptr ? at->key->string() : std::nullopt)
        path.emplace_back(*text);
      else if (const auto number = at->key != nullptr ? at->key->integer() : std::nullopt)
        path.emplace_back(*number);
      else
        return false;
    }
    std::ranges::reverse(path);
    return old_.get_path(path) || now_.get_path(path);
  }

  // torch._utils._rebuild_qtensor(storage, offset, size, stride, (scheme, scale, zero point), ...)
  void compare_scales(const Value& old, const Value& now, const Place& place) {
    constexpr std::size_t quantizer = 4;
    for (const Value& tensor : {old, now})
      if (tensor.callable().name() != "_rebuild_qtensor" || tensor.arguments().size() <= quantizer)
        return;
    compare(old.arguments()[quantizer], now.arguments()[quantizer], below(place, "(quantizer)"));
  }

  // Compares storages without a tensor by type and bytes; keys are only numbers in file order.
  bool are_equal_storages(const Value& old, const Value& now) {
    const Value was = old.persistent_id();  // ("storage", type, key, location, number of elements)
    const Value is = now.persistent_id();
    constexpr std::size_t type = 1;
    constexpr std::size_t key = 2;
    if (was.size() <= key || is.size() <= key) return was.size() == is.size();
    return ByContent(budget_).compare_atoms(was[type], is[type]) == 0 &&
           std::ranges::equal(storage_bytes(old_, was[key]), storage_bytes(now_, is[key]));
  }

  static std::span<const std::byte> storage_bytes(const Checkpoint& checkpoint, const Value& key) {
    for (std::size_t i = 0; i < Backing(checkpoint).storage_count(); ++i) {
      const NamedStorage storage = Backing(checkpoint).storage(i);
      if (storage.key == key.string())
        return checkpoint.mapping().subspan(
            checkpoint.source(storage.source).mapping_offset + storage.payload_offset,
            storage.nbytes);
    }
    return {};
  }

  // Objects that fit one line are compared by it: numpy's numbers, dates, devices.
  static bool is_other_object(const Value& old, const Value& now) {
    if (old.kind() != Kind::object) return false;
    if (type_of(old) != type_of(now)) return true;
    const std::optional<std::string> was = one_line(old);
    const std::optional<std::string> is = one_line(now);
    return type_name_of(old) == type_name_of(now) && was && is && *was != *is;
  }

  static std::string type_of(const Value& object) {
    if (is_reconstructed(object)) return present_name(object.arguments()[0]);
    return object.callable().kind() == Kind::global ? present_name(object.callable())
                                                    : type_name_of(object);
  }

  // True for copyreg._reconstructor(type, object, None), how protocols 0 and 1 make an object.
  static bool is_reconstructed(const Value& object) {
    return object.callable().kind() == Kind::global &&
           present_name(object.callable()) == "copyreg._reconstructor" &&
           object.arguments().size() == 3 && object.arguments()[0].kind() == Kind::global &&
           object.arguments()[2].is_none();
  }

  static bool is_frozen(const Value& set) {
    return set.kind() == Kind::frozen_set ||
           (set.kind() == Kind::object && set.callable().name() == "frozenset");
  }

  // Returns the elements of a set, or of protocol 2's set([1, 2]).
  static std::optional<Value> elements_of_set(const Value& value) {
    if (value.kind() == Kind::set || value.kind() == Kind::frozen_set) return value;
    if (value.kind() != Kind::object || value.arguments().size() != 1) return std::nullopt;
    const std::string_view name = value.callable().name();
    const std::string_view module = value.callable().module();
    const bool is_set =
        (name == "set" || name == "frozenset") && (module == "builtins" || module == "__builtin__");
    return is_set ? std::optional(value.arguments()[0]) : std::nullopt;
  }

  bool are_equal_sets(const Value& old, const Value& now) {
    std::set<Value, ByContent> was{ByContent(budget_)};
    std::set<Value, ByContent> is{ByContent(budget_)};
    for (const Value& element : old.elements()) was.insert(element);
    for (const Value& element : now.elements()) is.insert(element);
    const ByContent less(budget_);
    return std::ranges::equal(
        was, is, [&](const Value& a, const Value& b) { return !less(a, b) && !less(b, a); });
  }

  // Returns false for a pair of values that has been compared, or is being compared in a cycle.
  bool meets(const Value& old, const Value& now) {
    return !old.may_be_shared() || !now.may_be_shared() || seen_.emplace(old, now).second;
  }

  void compare_parts(const Value& old, const Value& now, const Place& place) {
    const auto count = [](const Value& object) {
      return is_reconstructed(object) ? 0 : object.arguments().size();
    };
    if (old.kind() == Kind::object && count(old) + count(now) > 0)
      compare(old.arguments(), now.arguments(), below(place, "(arguments)"));
    compare_elements(old, now, place);
    compare_items(old, now, place);
    compare_states(old.state(), now.state(), place);
  }

  void compare_elements(const Value& old, const Value& now, const Place& place) {
    const auto was = old.elements();
    const auto is = now.elements();
    auto in_old = was.begin();
    auto in_now = is.begin();
    std::size_t index = 0;
    for (; in_old != was.end() && in_now != is.end(); ++in_old, ++in_now, ++index)
      compare(*in_old, *in_now, below(place, index));
    for (; in_old != was.end(); ++in_old, ++index) remove(*in_old, below(place, index));
    for (; in_now != is.end(); ++in_now, ++index) add(*in_now, below(place, index));
  }

  void compare_items(const Value& old, const Value& now, const Place& place) {
    const Items was(old, budget_);
    const Items is(now, budget_);
    for (const auto& [key, part] : was.all())
      if (const Value* const other = is.find(key))
        compare(part, *other, below(place, key));
      else
        remove(part, below(place, key));
    for (const auto& [key, part] : is.all())
      if (was.find(key) == nullptr) add(part, below(place, key));
  }

  void compare_states(const std::optional<Value>& old, const std::optional<Value>& now,
                      const Place& place) {
    const bool are_attributes =
        old && now && old->kind() == Kind::dict && now->kind() == Kind::dict;
    if (are_attributes) return compare_items(*old, *now, place);
    const Place state = below(place, "(state)");
    if (old && now) return compare(*old, *now, state);
    if (old) remove(*old, state);
    if (now) add(*now, state);
  }

  void change(const Value& old, const Value& now, const Place& place) {
    ++found_.changed;
    list(old, now, place);
  }
  // Tensors are reported in the table of tensors.
  void remove(const Value& old, const Place& place) {
    budget_.spend(1);
    if (is_tensor(old_, old) || (numpy_array_parts(old) && is_listed(place))) return;
    ++found_.removed;
    list(old, {}, place);
  }
  void add(const Value& now, const Place& place) {
    budget_.spend(1);
    if (is_tensor(now_, now) || (numpy_array_parts(now) && is_listed(place))) return;
    ++found_.added;
    list({}, now, place);
  }
  void list(std::optional<Value> old, std::optional<Value> now, const Place& place) {
    if (found_.first.size() < ValueDifferences::most_listed)
      found_.first.push_back({place.name(), old, now});
  }

  // Compares nodes, not their content.
  struct ByNode {
    std::size_t operator()(const Pair& pair) const noexcept {
      return pair.first.hash() * 31 + pair.second.hash();
    }
    bool operator()(const Pair& a, const Pair& b) const noexcept {
      return a.first.is_same_as(b.first) && a.second.is_same_as(b.second);
    }
  };

  const Checkpoint& old_;
  const Checkpoint& now_;
  Budget budget_;
  ValueDifferences found_;
  std::unordered_set<Pair, ByNode, ByNode> seen_;
};

}  // namespace

Result<ValueDifferences> compare_values(const Checkpoint& old, const Checkpoint& now) {
  return Comparer(old, now).compare();
}

}  // namespace weightmap::cli
