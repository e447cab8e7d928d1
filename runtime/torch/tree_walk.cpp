#include "runtime/torch/tree_walk.hpp"

#include <algorithm>
#include <optional>

#include "runtime/base/try.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/torch/equal_key.hpp"
#include "runtime/torch/key_text.hpp"
#include "runtime/torch/names.hpp"

namespace weightmap::torch {

using value::Cell;
using value::PackedCall;

bool TreeWalk::walk() {
  if (Result<void> harmless = refuse_harmful_globals(); !harmless)
    return fail(std::move(harmless.error()));
  table_.paths.push_back({});
  Child child{{}, tree_.root(), false};
  if (!visit(child, TensorSpec::is_root)) return false;
  while (!frames_.empty()) {
    if (!found_items(frames_.back())) return false;
    if (!(frames_.back().next(child) ? visit(child, frames_.back().path()) : leave())) return false;
  }
  return true;
}

Result<void> TreeWalk::refuse_harmful_globals() const {
  for (const value::Global* global : tree_.globals())
    if (is_harmful(global->module, global->name))
      return failure(
          ErrorCode::unsafe_pickle,
          "the pickle names " +
              bytes::escape(std::string(global->module) + "." + std::string(global->name)) +
              ", which no checkpoint needs; nothing was run",
          file_offset_ + global->position);
  return {};
}

bool TreeWalk::visit(const Child& child, std::uint32_t path) {
  if (!spend(1)) return false;
  if (const PackedCall* packed = value::packed_call(child.value))
    return found_packed(*packed, child, path);
  switch (value::kind_of(child.value)) {
    case Value::Kind::object:
      return visit_object(child, path);
    case Value::Kind::tuple:
    case Value::Kind::list:
    case Value::Kind::dict:
    case Value::Kind::set:
    case Value::Kind::frozen_set:
      return enter(child, path);
    case Value::Kind::persistent_id:
      return visit_storage(child);
    default:
      note_other_item();
      return true;
  }
}

bool TreeWalk::visit_storage(const Child& child) {
  note_other_item();
  const Value id = value(child.value).persistent_id();
  if (id.kind() != Value::Kind::tuple || id.size() != 5 || id[0].string() != "storage" ||
      !id[2].string() || !id[4].integer())
    return true;
  const std::optional<StorageType> type = storage_type(id[1].module(), id[1].name());
  if (!type) return true;
  return found_storage(*id[2].string(), *id[4].integer(), type->dtype);
}

bool TreeWalk::visit_object(const Child& child, std::uint32_t path) {
  std::uint32_t* const mark = mark_of(child.value);
  if (mark == nullptr) {  // hooks reached by themselves
    note_other_item();
    return true;
  }
  if (mark_at(mark) >= first_decoded) {
    table_.storages.count_hit();
    return visit_decoded(mark_at(mark) - first_decoded, child, path);
  }
  if (mark_at(mark) != mark_unknown) return enter(child, path);
  TensorCall call;
  const Result<bool> is_tensor = decoder_.unwrap(value(child.value), call);
  if (!is_tensor) return fail(is_tensor.error());
  if (!*is_tensor) return enter(child, path);
  const auto number = static_cast<std::uint32_t>(attachments_.size());
  attachments_.push_back(std::move(call.attachments));
  if (!found_call(call, child.value)) return false;
  set_mark(mark, first_decoded + number);
  return visit_decoded(number, child, path);
}

bool TreeWalk::visit_decoded(std::uint32_t number, const Child& child, std::uint32_t path) {
  if (!found_object(number, child, path)) return false;
  if (attachments_[number].empty()) return true;
  if (!check_depth()) return false;
  const Frame::Before before{table_.tensor_count, table_.paths.size(), cuts_};
  frames_.emplace_back(attachments_[number], child_path(child, path), before);
  return true;
}

bool TreeWalk::check_depth() {
  if (frames_.size() < limits_.depth) return true;
  return fail(ErrorCode::limit_exceeded,
              "the pickle nests deeper than " + std::to_string(limits_.depth) + " containers");
}

bool TreeWalk::enter(const Child& child, std::uint32_t path) {
  // A state is none of the items, so it cannot come under a key of theirs.
  if (child.has_key) note_other_item();
  if (std::uint32_t* const mark = mark_of(child.value)) {
    if (mark_at(mark) == mark_barren) return true;
    if (mark_at(mark) == mark_open) {  // a cycle; its tensors are listed above
      ++cuts_;
      return true;
    }
    set_mark(mark, mark_open);
  }
  if (!check_depth()) return false;
  const Value container = value(child.value);
  const Frame::Before before{table_.tensor_count, table_.paths.size(), cuts_};
  const std::uint32_t own_path = child_path(child, path);
  const Value callable = container.callable();
  table_.paths[own_path].keys_are_unique =
      container.kind() == Value::Kind::dict || is_dict_class(callable.module(), callable.name());
  frames_.emplace_back(container, own_path, before);
  return true;
}

// What leads to no tensor leaves no path and is not walked again; but inside a cycle something may
// have been left out.
bool TreeWalk::leave() {
  const Frame& frame = frames_.back();
  const Frame::Before& before = frame.before();
  const bool barren = table_.tensor_count == before.tensors;
  if (!barren && frame.has_other_items() && table_.paths[frame.path()].keys_are_unique &&
      !check_keys(frame.value()))
    return false;
  if (std::uint32_t* const mark = mark_of(frame.value().cell()))
    set_mark(mark, barren && cuts_ == before.cuts ? mark_barren : mark_unknown);
  if (barren) table_.paths.resize(before.paths);
  frames_.pop_back();
  return true;
}

// The state of an object is walked under the object's own path: a module's tensors are called by
// the attributes that hold them. It still has a node of its own, since an item and an attribute of
// one name are two things.
std::uint32_t TreeWalk::child_path(const Child& child, std::uint32_t parent) {
  if (parent == TensorSpec::is_root) return 0;
  PathNode node = table_.paths[parent];
  node.keys_are_unique = false;
  if (child.has_key) {
    node.prefix_bytes += KeyText(tree_, child.key).text().size() + 1;
    node.key = child.key;
    node.parent = parent;
    ++node.depth;
  }
  table_.paths.push_back(node);
  return static_cast<std::uint32_t>(table_.paths.size() - 1);
}

bool TreeWalk::is_tensor_cell(const Cell& cell) {
  if (const PackedCall* packed = value::packed_call(cell)) return is_tensor(*packed);
  const std::uint32_t* const mark = mark_of(cell);
  return mark != nullptr && mark_at(mark) >= first_decoded;
}

bool TreeWalk::check_keys(const Value& container) {
  const auto items = [&](auto visit) {
    for (const auto& [key, item] : container.items()) {
      const Value::Kind kind = key.kind();
      const bool has_name = kind == Value::Kind::string || kind == Value::Kind::integer;
      visit(key.cell(), has_name && is_tensor_cell(item.cell()));
    }
  };
  const auto less = [this](const Cell& a, const Cell& b) {
    return EqualKey(tree_, a) < EqualKey(tree_, b);
  };
  const auto equal = [this](const Cell& a, const Cell& b) {
    return EqualKey(tree_, a) == EqualKey(tree_, b);
  };
  std::uint64_t text_bytes = 0;
  std::size_t other_count = 0;
  items([&](const Cell& key, bool is_named_tensor) {
    text_bytes += EqualKey(tree_, key).text_bytes();
    if (!is_named_tensor) ++other_count;
  });
  if (!spend(container.item_count() + text_bytes / 64) ||
      !check_memory(other_count * sizeof(Cell), 0))
    return false;
  std::vector<Cell> others;
  others.reserve(other_count);
  items([&](const Cell& key, bool is_named_tensor) {
    if (!is_named_tensor && EqualKey(tree_, key).is_comparable()) others.push_back(key);
  });
  if (!std::is_sorted(others.begin(), others.end(), less))
    std::sort(others.begin(), others.end(), less);
  auto twice = std::adjacent_find(others.begin(), others.end(), equal);
  if (twice == others.end() && other_count != container.item_count())
    items([&](const Cell& key, bool is_named_tensor) {
      if (!is_named_tensor || twice != others.end()) return;
      const auto found = std::lower_bound(others.begin(), others.end(), key, less);
      if (found != others.end() && equal(*found, key)) twice = found;
    });
  if (twice == others.end()) return true;
  return fail(key_twice(tree_, *twice, file_offset_));
}

// A shared container is listed each time it is reached, so few bytes could ask for many tensors.
bool TreeWalk::check_memory(std::uint64_t more, std::uint32_t position) {
  if (table_.bytes() + more <= limits_.base_memory + 2 * tree_.pickle().size()) return true;
  return fail(ErrorCode::limit_exceeded,
              "the names and shapes of the tensors need more memory than " +
                  std::to_string(limits_.base_memory) + " bytes and twice the pickle",
              position);
}

bool TreeWalk::count(const Child& child, std::uint32_t path, std::uint32_t position) {
  if (table_.tensor_count == limits_.tensors)
    return fail(ErrorCode::limit_exceeded,
                "the pickle has more than " + std::to_string(limits_.tensors) + " tensors",
                position);
  ++table_.tensor_count;
  if (path == TensorSpec::is_root) return true;
  const Cell key = key_of(child);
  const Value::Kind kind = value::kind_of(key);
  const bool is_text = kind == Value::Kind::string;
  table_.count_names(path, 1, is_text ? key.count : KeyText(tree_, key).text().size(),
                     kind == Value::Kind::integer);
  if (!is_text && kind != Value::Kind::integer) frames_.back().note_other_item();
  return true;
}

}  // namespace weightmap::torch
