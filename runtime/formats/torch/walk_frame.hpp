// A container that the walk is in, and what it has found there so far.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/value/module_state.hpp"
#include "runtime/base/value/tree.hpp"
#include "runtime/formats/torch/plain_calls.hpp"
#include "runtime/formats/torch/tensor_table.hpp"
#include "weightmap/value.hpp"

namespace weightmap::torch {

// A value in a container and its key. A state dict has none, since it adds nothing to the path.
struct Child {
  value::Cell key;
  value::Cell value;
  bool has_key = false;
  std::uint8_t flags = 0;   // TensorSpec::attribute, not_persistent and buffer
  bool is_buffers = false;  // the dict of a module's buffers
};

// Something that a wrapper attaches to a tensor and that may hold tensors itself.
struct Attachment {
  std::int64_t number;  // of the argument
  value::Cell value;
  std::uint8_t flags = 0;  // of what it holds: attribute if it repeats the tensor
};

// The walk's knowledge of a container or object, in its mark: one of these, or first_decoded plus
// the number of a tensor.
enum Mark : std::uint32_t { mark_unknown, mark_open, mark_barren, first_decoded };

// Returns nullptr for cells without a mark: tuples, pieces of packed calls, and scalars.
inline std::uint32_t* mark_of(const value::Cell& cell) noexcept {
  switch (value::kind_of(cell)) {
    case Value::Kind::list:
    case Value::Kind::dict:
    case Value::Kind::set:
    case Value::Kind::frozen_set:
      return &value::target_of<const value::Sequence>(cell)->mark;
    case Value::Kind::object:
      if (cell.part == value::whole_value)
        return &value::target_of<const value::Object>(cell)->mark;
      return nullptr;
    default:
      return nullptr;
  }
}

// The current position in a container: its arguments (or what contents_of_call() has), elements,
// items (the key before the value) and state, in this order; or the attachments of a tensor.
class Frame {
 public:
  static constexpr std::uint32_t no_limit = std::numeric_limits<std::uint32_t>::max();

  // Counts at the time when the walk entered the container.
  struct Before {
    std::size_t tensors;
    std::size_t paths;
    std::uint64_t cuts;
  };

  Frame(const Value& value, std::uint32_t path, const Before& before)
      : value_(value), path_(path), before_(before), state_left_(value.state().has_value()) {
    const value::Cell& cell = value.cell();
    switch (value.kind()) {
      case Value::Kind::tuple:
        tuple_ = cell;
        break;
      case Value::Kind::list:
      case Value::Kind::set:
      case Value::Kind::frozen_set:
        elements_ = value::CellCursor(value::target_of<const value::Sequence>(cell));
        break;
      case Value::Kind::dict:
        items_ = value::CellCursor(value::target_of<const value::Sequence>(cell));
        break;
      default: {
        const auto& object = *value::target_of<const value::Object>(cell);
        graph_module_ = value::graph_module_state(value);
        if (!graph_module_) tuple_ = object.arguments;
        if (const std::optional<Value> contents = contents_of_call(value)) take(contents->cell());
        elements_ = value::CellCursor(object.elements);
        items_ = value::CellCursor(object.items);
      }
    }
  }
  // `attachments` must outlive the frame.
  Frame(const std::vector<Attachment>& attachments, std::uint32_t path, const Before& before)
      : value_(nullptr, {}), path_(path), before_(before), attachments_(attachments) {}

  const Value& value() const noexcept { return value_; }
  std::uint32_t path() const noexcept { return path_; }
  const Before& before() const noexcept { return before_; }

  // `limit` is the position in the pickle of the earliest call that has this container, or one that
  // holds it, among its arguments. `arguments_limit` is the same for its own arguments.
  void set_limits(std::uint32_t limit, std::uint32_t arguments_limit) noexcept {
    limit_ = limit;
    arguments_limit_ = arguments_limit;
  }
  // The limit for the child that next() returned last.
  std::uint32_t child_limit() const noexcept { return in_arguments_ ? arguments_limit_ : limit_; }
  // True if the container changed after a call that has it among its arguments.
  bool is_late() const noexcept { return value_.changed_at() > limit_; }

  // Notes that the contents are the parts of TensorTable::composed[number].
  // `position` is that of the innermost call, if wrappers hold it.
  void note_composed(std::size_t number, std::uint32_t position = 0) noexcept {
    composed_ = number;
    composed_at_ = position;
  }
  // The state of the tensor, argument 3 of _rebuild_from_type_v2, repeats the other arguments.
  void note_repeating_state() noexcept {
    repeats_from_ = 3;
    is_plain_ = false;
  }
  // True for a frame of a wrapper of the call at this position.
  bool is_wrapper_of(std::uint32_t position) const noexcept {
    return composed_ && composed_at_ == position && value_.position() != position;
  }
  std::optional<std::size_t> composed() const noexcept { return composed_; }

  // The flags of the container itself, which its contents have, too.
  void set_flags(std::uint8_t flags) noexcept {
    flags_ = flags;
    is_plain_ = is_plain_ && flags == 0;
  }
  // The contents are those of a module's state.
  void set_module(const value::ModuleState& module) noexcept {
    module_ = module;
    is_plain_ = false;
  }
  const value::ModuleState* module() const noexcept { return module_ ? &*module_ : nullptr; }
  // The items are buffers of a module, and those that this set names are not persistent.
  void set_buffers(const Value& non_persistent) noexcept {
    flags_ |= TensorSpec::buffer;
    non_persistent_ = contents_of_call(non_persistent).value_or(non_persistent);
    cost_ = non_persistent_.size();
    is_plain_ = false;
  }
  // What next() may cost more than other frames.
  std::uint64_t cost() const noexcept { return cost_; }

  // Its items may repeat a key without two tensors having one name.
  void note_other_item() noexcept { has_other_items_ = true; }
  bool has_other_items() const noexcept { return has_other_items_; }

  // Returns false at the end.
  bool next(Child& child) {
    if (is_plain_) return next_plain(child);
    if (module_ && next_section(child)) return true;
    if (!next_plain(child)) return false;
    child.flags |= flags_;
    if (module_ || index_ > repeats_from_) child.flags |= TensorSpec::attribute;
    if (cost_ != 0 && is_named(child.key)) child.flags |= TensorSpec::not_persistent;
    return true;
  }

 private:
  // Returns first what a module's state_dict() names, whose keys are those of the module itself.
  bool next_section(Child& child) {
    if (sections_ == 3) return false;
    const Value& section = sections_ == 0   ? module_->parameters
                           : sections_ == 1 ? module_->buffers
                                            : module_->modules;
    child = {{}, section.cell(), false, flags_, sections_ == 1};
    ++sections_;
    return true;
  }

  bool is_named(const value::Cell& key) const noexcept {
    const std::optional<std::string_view> wanted = Value(value_.tree(), key).string();
    return wanted && std::ranges::any_of(non_persistent_.elements(), [&](const Value& name) {
             return name.string() == wanted;
           });
  }

  bool next_plain(Child& child) {
    if (!in_items_) {
      if (next_element(child)) return true;
      in_items_ = true;
    }
    if (key_ == nullptr) {
      key_ = items_.next();
      while (key_ != nullptr && module_ && value::is_module_section({value_.tree(), *key_})) {
        items_.next();
        key_ = items_.next();
      }
      if (key_ == nullptr) return next_extra(child);
      if (may_hold_tensors(*key_)) {  // the key's contents come first, under the item's name
        child = {*key_, *key_, true};
        return true;
      }
    }
    // Member by member: a copy of a whole Child waits for the stores of its parts (12 ns of 85).
    child.key = *std::exchange(key_, nullptr);
    child.value = *items_.next();
    child.has_key = true;
    child.flags = 0;
    child.is_buffers = false;
    return true;
  }

  // Of the arguments or what is read in their place, then of the elements.
  bool next_element(Child& child) {
    in_arguments_ = tuple_at_ < tuple_.count;
    if (in_arguments_) {
      child = {value::make_integer(index_++), value::tuple_element(tuple_, tuple_at_++), true};
      return true;
    }
    const value::Cell* element = contents_.next();
    in_arguments_ = element != nullptr;
    if (element == nullptr) element = elements_.next();
    if (element == nullptr) return false;
    child = {value::make_integer(index_++), *element, true};
    return true;
  }

  // Such elements are there in place of the arguments.
  void take(const value::Cell& contents) noexcept {
    tuple_ = {};
    if (value::kind_of(contents) == Value::Kind::tuple)
      tuple_ = contents;
    else
      contents_ = value::CellCursor(value::target_of<const value::Sequence>(contents));
  }
  static bool may_hold_tensors(const value::Cell& key) noexcept {
    switch (value::kind_of(key)) {
      case Value::Kind::tuple:
      case Value::Kind::frozen_set:
      case Value::Kind::object:
      case Value::Kind::persistent_id:
        return true;
      default:
        return false;
    }
  }

  bool next_extra(Child& child) {
    if (!attachments_.empty()) {
      child = {value::make_integer(attachments_.front().number), attachments_.front().value, true};
      child.flags = attachments_.front().flags;
      attachments_ = attachments_.subspan(1);
      return true;
    }
    in_arguments_ = graph_module_.has_value();
    if (graph_module_) {
      child = {{}, std::exchange(graph_module_, std::nullopt)->cell(), false};
      return true;
    }
    if (!state_left_) return false;
    state_left_ = false;
    child = {{}, value_.state()->cell(), false};
    return true;
  }

  Value value_;
  std::uint32_t path_;
  Before before_;
  std::uint32_t limit_ = no_limit;
  std::uint32_t arguments_limit_ = no_limit;
  bool in_arguments_ = false;
  bool in_items_ = false;  // or behind them
  bool state_left_ = false;
  bool has_other_items_ = false;
  bool is_plain_ = true;  // next() has no flags to add: nearly all frames, so this is quick
  std::uint8_t flags_ = 0;
  std::uint8_t sections_ = 0;  // that next() has returned
  std::optional<value::ModuleState> module_;
  Value non_persistent_;
  std::uint64_t cost_ = 0;
  std::optional<std::size_t> composed_;
  std::uint32_t composed_at_ = 0;
  std::int64_t repeats_from_ = std::numeric_limits<std::int64_t>::max();
  std::optional<Value> graph_module_;  // the dict that is read in place of the arguments
  value::Cell tuple_;                  // count 0: no tuple
  std::uint32_t tuple_at_ = 0;
  std::int64_t index_ = 0;
  value::CellCursor contents_;
  value::CellCursor elements_;
  value::CellCursor items_;
  const value::Cell* key_ = nullptr;  // of the item whose key was searched
  std::span<const Attachment> attachments_;
};

}  // namespace weightmap::torch
