#include "runtime/formats/torch/tree_walk.hpp"

#include <algorithm>
#include <optional>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/value/module_state.hpp"
#include "runtime/formats/torch/names.hpp"
#include "runtime/formats/torch/plain_calls.hpp"
#include "runtime/formats/torch/repeated_keys.hpp"
#include "runtime/formats/torch/tensor_name.hpp"

namespace weightmap::torch {

using value::Cell;
using value::PackedCall;
namespace {

// The first tensors of a pickle and those in its last kilobyte are never packed.
std::size_t expected_tensors(const value::Tree& tree) noexcept {
  return tree.packed_count() + tree.packed_count() / 64 + 16;
}

}  // namespace

TreeWalk::TreeWalk(const value::Tree& tree, const ReadLimits& limits,
                   std::pmr::memory_resource& memory, std::uint32_t first_mark)
    : tree_(tree),
      file_offset_(limits.file_offset),
      limits_(limits.limits),
      budget_(tree.pickle().size(), limits.file_offset),
      table_(memory, expected_tensors(tree), expected_tensors(tree)),
      decoder_(tree, limits.file_offset, limits.views, limits.limits, table_, budget_),
      composed_(limits.file_offset, limits.limits.rank),
      script_(limits.script),
      arrays_(limits.arrays),
      first_mark_(first_mark) {}

Result<TensorTable> TreeWalk::run() && {
  if (!walk()) return tl::unexpected<Error>(std::move(error_));
  if (has_attributes_) move_unlisted(table_);
  return std::move(table_);
}

bool TreeWalk::walk() {
  table_.paths.push_back({});
  if (script_ != nullptr) return walk_script();
  return walk_from({{}, tree_.root(), false}, TensorSpec::is_root);
}

// Names the module's attributes without a prefix, as its state_dict() does.
bool TreeWalk::walk_script() {
  auto record = value(tree_.root()).items().begin();
  const Value module = (*record).second;
  const auto [constants_key, constants] = *++record;
  if (!walk_from({{}, module.cell(), false}, 0)) return false;
  decoder_.begin_constants();
  return walk_from({constants_key.cell(), constants.cell(), true}, 0);
}

bool TreeWalk::walk_from(Child child, std::uint32_t path) {
  if (!visit(child, path)) return false;
  while (!frames_.empty()) {
    Frame& frame = frames_.back();
    if (frame.cost() != 0 && !spend(frame.cost())) return false;
    if (!(frame.next(child) ? visit(child, frame.path()) : leave())) return false;
  }
  return true;
}

// torch.jit wraps a list or dict in a call that states its type; its argument replaces the call.
bool TreeWalk::unwrap_typed(Child& child) {
  while (value::kind_of(child.value) == Value::Kind::object &&
         child.value.part == value::whole_value) {
    const Value arguments = value(child.value).arguments();
    if (!is_type_tag(value(child.value).callable()) || arguments.size() == 0) return true;
    if (!spend(1)) return false;
    child.value = arguments[0].cell();
  }
  return true;
}

std::uint8_t TreeWalk::role_of(const Child& child) const {
  if (child.flags != 0) return child.flags;
  if (script_ == nullptr || frames_.size() < 2 || value::kind_of(child.key) != Value::Kind::string)
    return 0;
  const Value& owner = frames_[frames_.size() - 2].value();
  const std::optional<Value> state = owner.state();
  if (!state || !state->is_same_as(frames_.back().value())) return 0;
  const Value type = owner.callable();
  switch (script_->role_of(type.module(), type.name(), value(child.key).string().value_or(""))) {
    case ScriptClasses::Role::parameter:
      return TensorSpec::parameter;
    case ScriptClasses::Role::buffer:
      return TensorSpec::buffer;
    case ScriptClasses::Role::attribute:
      break;
  }
  return 0;
}

bool TreeWalk::visit(Child& child, std::uint32_t path) {
  if (!spend(1)) return false;
  if (script_ != nullptr && !unwrap_typed(child)) return false;
  if (const PackedCall* packed = value::packed_call(child.value))
    return visit_packed(*packed, child, path);
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
  if (!decoder_.is_storage_id(id) || !id[2].string() || !id[4].integer()) return true;
  const std::optional<StorageType> type = storage_type(id[1].module(), id[1].name());
  if (!type) return true;
  const auto number = decoder_.intern(*id[2].string(), *id[4].integer(), type->dtype, 0);
  return number || fail(number.error());
}

bool TreeWalk::visit_packed(const PackedCall& call, const Child& child, std::uint32_t path) {
  if (last_meaning_ == nullptr || last_meaning_->header != call.shape->header) {
    const Result<const HeaderMeaning*> meaning = decoder_.meaning_of(call);
    if (!meaning) return fail(meaning.error()) || fail_in(child, path);
    last_meaning_ = *meaning;
  }
  if (!last_meaning_->is_tensor) {  // nothing inside such a call can be a tensor
    note_other_item();
    return true;
  }
  TensorSpec spec;
  if (!decoder_.describe_packed(call, *last_meaning_, spec) ||
      !decoder_.place_packed(call, *last_meaning_, spec.storage))
    return fail(decoder_.error()) || fail_in(child, path);
  return add(spec, child, path);
}

bool TreeWalk::visit_object(const Child& child, std::uint32_t path) {
  std::uint32_t* const mark = mark_of(child.value);
  if (mark == nullptr) {  // hooks reached outside a call
    note_other_item();
    return true;
  }
  if (mark_at(mark) >= first_decoded) {
    table_.storages.count_hit();
    return visit_decoded(mark_at(mark) - first_decoded, child, path);
  }
  const bool was_barren = mark_at(mark) == mark_barren &&
                          rebuild_function(value(child.value).callable()) != Rebuild::none;
  if (mark_at(mark) != mark_unknown && !was_barren) return enter(child, path);
  TensorCall call;
  const Result<bool> is_tensor = decoder_.unwrap(value(child.value), call);
  if (!is_tensor) return fail(is_tensor.error()) || fail_in(child, path);
  if (!*is_tensor && is_composed(call.function)) return visit_composed(call, child, path);
  if (!*is_tensor && arrays_ != Arrays::none)
    if (const std::optional<NumpyArray> array = numpy_array(value(child.value));
        array && (array->is_in_pickle || arrays_ == Arrays::all))
      return add_array(*array, child, path) || fail_in(child, path);
  if (!*is_tensor) return enter_call(child, path);
  const auto number = static_cast<std::uint32_t>(attachments_.size());
  has_attributes_ |= call.data.has_value();
  if (call.data)
    for (Attachment& attachment : call.attachments) attachment.flags = TensorSpec::attribute;
  attachments_.push_back(std::move(call.attachments));
  if (!decode(call, child.value)) return fail_in(child, path);
  set_mark(mark, first_decoded + number);
  return visit_decoded(number, child, path);
}

bool TreeWalk::fail_in(const Child& child, std::uint32_t path) {
  const std::string name = joined_name(tree_, table_.paths, path, key_of(child));
  error_.message = "tensor " + bytes::quote(name) + ": " + error_.message;
  return false;
}

bool TreeWalk::enter_call(const Child& child, std::uint32_t path) {
  const Value call = value(child.value);
  if (std::string fault = impossible_call(call); !fault.empty())
    return fail(ErrorCode::corrupt, std::move(fault), call.position());
  return enter(child, path);
}

bool TreeWalk::visit_composed(const TensorCall& call, const Child& child, std::uint32_t path) {
  const std::size_t depth = frames_.size();
  // The call that a Parameter wraps has made the tensor that is added already.
  const bool is_wrapped = depth != 0 && frames_.back().is_wrapper_of(call.position);
  const std::size_t number = is_wrapped ? *frames_.back().composed() : table_.composed.size();
  if (!is_wrapped && !add_composed(call, child, path)) return fail_in(child, path);
  if (!enter(child, path)) return false;
  if (table_.composed.size() > number && frames_.size() > depth)
    frames_.back().note_composed(number, call.position);
  if (call.function == Rebuild::jagged && frames_.size() > depth) {
    frames_.back().note_repeating_state();
    has_attributes_ = true;
  }
  return true;
}

bool TreeWalk::visit_decoded(std::uint32_t number, const Child& child, std::uint32_t path) {
  const std::size_t composed = table_.composed.size();
  if (!add_decoded(number, child, path)) return false;
  if (attachments_[number].empty()) return true;
  if (!check_depth()) return false;
  const Frame::Before before{table_.tensor_count, table_.paths.size(), cuts_};
  const std::uint32_t limit = frames_.empty() ? Frame::no_limit : frames_.back().child_limit();
  frames_.emplace_back(attachments_[number], child_path(child, path), before);
  frames_.back().set_flags(child.flags);
  frames_.back().set_limits(limit, limit);
  if (table_.composed.size() > composed) frames_.back().note_composed(composed);
  return true;
}

bool TreeWalk::check_depth() {
  if (frames_.size() < limits_.depth) return true;
  return fail(ErrorCode::limit_exceeded,
              "the pickle nests deeper than " + std::to_string(limits_.depth) + " containers");
}

bool TreeWalk::check_state(const Value& object) {
  const std::optional<std::uint32_t> changed_at = object.state_changed_at();
  return !changed_at ||
         fail(ErrorCode::unsupported,
              "the pickle changes the state of an object after it was set, at byte " +
                  std::to_string(*changed_at) + " of the pickle",
              *changed_at);
}

bool TreeWalk::enter(const Child& child, std::uint32_t path) {
  // A state is not an item, so it cannot have an item's key.
  if (child.has_key)
    note_other_item();
  else if (!frames_.empty() && !check_state(frames_.back().value()))
    return false;
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
  table_.paths[own_path].keys_are_unique =
      container.kind() == Value::Kind::dict || is_dict_class(container.callable());
  const std::uint32_t limit = frames_.empty() ? Frame::no_limit : frames_.back().child_limit();
  frames_.emplace_back(container, own_path, before);
  frames_.back().set_limits(limit, std::min(limit, arguments_limit(container)));
  frames_.back().set_flags(child.flags);
  note_module(child);
  return true;
}

// Notes that the frame of `child`, the last one, is one of a module's state or of its buffers.
void TreeWalk::note_module(const Child& child) {
  if (child.has_key || frames_.size() < 2 || script_ != nullptr) return;
  Frame& frame = frames_.back();
  const Frame& parent = frames_[frames_.size() - 2];
  if (child.is_buffers) frame.set_buffers(parent.module()->non_persistent);
  if (parent.value().kind() != Value::Kind::object) return;
  if (const auto module = value::module_state(frame.value())) {
    frame.set_module(*module);
    has_attributes_ = true;
  }
}

// Returns the position beyond which the call's callable does not see changes of its arguments. The
// first visit decides, as it does for Checkpoint::root(): in a cycle a call is made while the
// container that it lies in is filled.
std::uint32_t TreeWalk::arguments_limit(const Value& container) {
  if (container.kind() != Value::Kind::object || container.arguments().size() == 0)
    return Frame::no_limit;
  const bool is_first =
      calls_.insert(value::target_of<const value::Object>(container.cell())).second;
  return is_first ? container.position() : Frame::no_limit;
}

// A container without tensors leaves no path and is not walked again, except inside a cycle, where
// contents may have been skipped.
bool TreeWalk::leave() {
  const Frame& frame = frames_.back();
  const Frame::Before& before = frame.before();
  const bool barren = table_.tensor_count == before.tensors;
  if (frame.composed()) {
    ComposedTensor& composed = table_.composed[*frame.composed()];
    composed.part_count = table_.tensor_count - composed.first_part;
  }
  if (!barren && frame.is_late())
    return fail(ErrorCode::unsupported,
                "the pickle puts tensors into an argument of a call after the call, at byte " +
                    std::to_string(frame.value().changed_at()) + " of the pickle",
                frame.value().changed_at());
  if (!barren && frame.has_other_items() && table_.paths[frame.path()].keys_are_unique &&
      !check_keys(frame.value()))
    return false;
  if (std::uint32_t* const mark = mark_of(frame.value().cell()))
    set_mark(mark, barren && cuts_ == before.cuts ? mark_barren : mark_unknown);
  if (barren) table_.paths.resize(before.paths);
  frames_.pop_back();
  return true;
}

// Gives an object's state a path node of its own with the object's path text: a module's tensors
// are named by their attributes, but an item and an attribute of one name are different things.
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
  if (const PackedCall* packed = value::packed_call(cell)) {
    const Result<const HeaderMeaning*> meaning = decoder_.meaning_of(*packed);
    return meaning && (*meaning)->is_tensor;
  }
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

// A shared container is listed at each occurrence, so a few bytes could cause many tensors.
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

bool TreeWalk::decode(const TensorCall& call, const value::Cell& object) {
  Result<TensorSpec> spec = decoder_.decode(call);
  if (!spec) return fail(std::move(spec.error()));
  spec->position = *value::position_of(object);  // the outermost wrapper is the tensor
  if (call.function == Rebuild::qtensor) {
    Result<ComposedTensor> quantized = composed_.decode_quantized(call, *spec);
    if (!quantized) return fail(std::move(quantized.error()));
    quantized_.emplace(static_cast<std::uint32_t>(decoded_.size()), std::move(*quantized));
  }
  decoded_.push_back(*spec);
  table_.decoded_bytes += sizeof(TensorSpec) + sizeof(std::vector<Attachment>);
  return true;
}

bool TreeWalk::add_decoded(std::uint32_t number, const Child& child, std::uint32_t path) {
  if (!add(decoded_[number], child, path)) return false;
  const auto quantized = quantized_.find(number);
  return quantized == quantized_.end() || add_composed(quantized->second, table_.tensor_count - 1,
                                                       child, path, decoded_[number].position);
}

bool TreeWalk::add_composed(const TensorCall& call, const Child& child, std::uint32_t path) {
  Result<std::optional<ComposedTensor>> composed = composed_.decode(call);
  if (!composed) return fail(std::move(composed.error()));
  return !*composed ||
         add_composed(std::move(**composed), table_.tensor_count, child, path, call.position);
}

bool TreeWalk::add_array(const NumpyArray& array, const Child& child, std::uint32_t path) {
  TensorSpec spec{};
  if (array.shape.size() > limits_.rank)
    return fail(ErrorCode::limit_exceeded, "an array has " + std::to_string(array.shape.size()) +
                                               " dimensions, the limit is " +
                                               std::to_string(limits_.rank));
  std::vector<std::int64_t>& dims = table_.owned_dims.emplace_back(array.shape);
  dims.insert(dims.end(), array.strides.begin(), array.strides.end());
  table_.decoded_bytes += dims.size() * sizeof(std::int64_t) + sizeof(ArrayExtent);
  spec.dims = dims.data();
  spec.rank = static_cast<std::uint8_t>(array.shape.size());
  spec.dtype = array.dtype;
  spec.position = *value::position_of(child.value);
  const bool is_known = !table_.arrays.empty() && table_.arrays.back().position == array.position;
  if (!is_known) table_.arrays.push_back({array.position, array.nbytes, spec.position, {}});
  spec.storage = TensorSpec::in_pickle | static_cast<std::uint32_t>(table_.arrays.size() - 1);
  Result<std::uint16_t> location = decoder_.location_number("cpu");
  if (!location) return fail(std::move(location.error()));
  spec.location = *location;
  return add(spec, child, path);
}

bool TreeWalk::add_composed(ComposedTensor composed, std::uint64_t first_part, const Child& child,
                            std::uint32_t path, std::uint32_t position) {
  composed.name = joined_name(tree_, table_.paths, path, key_of(child));
  const std::uint8_t role = role_of(child);
  composed.is_parameter = composed.is_parameter || (role & TensorSpec::parameter) != 0;
  composed.is_buffer = (role & TensorSpec::buffer) != 0;
  composed.first_part = first_part;
  composed.part_count = table_.tensor_count - first_part;
  table_.decoded_bytes += sizeof(ComposedTensor) + composed.name.size() + composed.type.size() +
                          (composed.sizes.size() + composed.strides.size()) * sizeof(std::int64_t);
  if (!check_memory(0, position)) return false;
  table_.composed.push_back(std::move(composed));
  table_.composed_nodes.push_back({position, child.flags});
  return true;
}

bool TreeWalk::add(const TensorSpec& spec, const Child& child, std::uint32_t path) {
  if (!count(child, path, spec.position)) return false;
  table_.count_dims(spec.dims, spec.rank);
  if (!check_memory(0, spec.position)) return false;
  TensorSpec& added = table_.tensors.emplace_back(spec);
  added.path = path;
  added.key = key_of(child);
  added.flags |= role_of(child);
  return true;
}

Result<TensorTable> read_tensors(const value::Tree& tree, const ReadLimits& limits,
                                 std::pmr::memory_resource& memory, std::uint32_t first_mark) {
  return TreeWalk(tree, limits, memory, first_mark).run();
}

}  // namespace weightmap::torch
