#include "runtime/torch/read_tensors.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "runtime/bytes/escape.hpp"
#include "runtime/torch/names.hpp"

namespace weightmap::torch {
namespace {

using pickle::Cell;
using pickle::PackedCall;
using pickle::PackedHeader;
using pickle::Tree;

[[gnu::cold]] std::string qualified(const Value& global) {
  return bytes::escape(std::string(global.module()) + "." + std::string(global.name()));
}

// What the calls with one PackedHeader have in common, worked out once.
struct HeaderMeaning {
  const PackedHeader* header;
  bool is_tensor;
  DType dtype;
  std::uint32_t storage_element_size;
  std::uint16_t location;
};

// What a container holds, and under which key. A state that is a dict adds no part to the path of
// what it holds, so it comes without a key.
struct Child {
  Cell key;
  Cell value;
  bool has_key = false;
};

// A container that is being walked: its arguments, elements, items and state, in this order.
class Frame {
 public:
  Frame(const Value& value, std::uint32_t path)
      : value_(value), path_(path), state_left_(value.state().has_value()) {
    const Cell& cell = value.cell();
    switch (value.kind()) {
      case Value::Kind::tuple:
        tuple_ = cell;
        break;
      case Value::Kind::list:
      case Value::Kind::set:
      case Value::Kind::frozen_set:
        elements_ = pickle::CellCursor(pickle::target_of<const pickle::Sequence>(cell));
        break;
      case Value::Kind::dict:
        items_ = pickle::CellCursor(pickle::target_of<const pickle::Sequence>(cell));
        break;
      default: {
        const auto& object = *pickle::target_of<const pickle::Object>(cell);
        tuple_ = object.arguments;
        elements_ = pickle::CellCursor(object.elements);
        items_ = pickle::CellCursor(object.items);
      }
    }
  }

  const Value& value() const noexcept { return value_; }
  std::uint32_t path() const noexcept { return path_; }

  // The next child; false at the end.
  bool next(Child& child) {
    if (tuple_at_ < tuple_.count) return next_of_tuple(child);
    if (const Cell* element = elements_.next()) {
      child = {pickle::make_integer(index_++), *element, true};
      return true;
    }
    const Cell* key = items_.next();
    if (key == nullptr) return next_state(child);
    child = {*key, *items_.next(), true};
    return true;
  }

 private:
  bool next_of_tuple(Child& child) {
    child = {pickle::make_integer(index_++), pickle::tuple_element(tuple_, tuple_at_++), true};
    return true;
  }
  bool next_state(Child& child) {
    if (!state_left_) return false;
    state_left_ = false;
    child = {{}, value_.state()->cell(), false};
    return true;
  }

  Value value_;
  std::uint32_t path_;
  bool state_left_;
  Cell tuple_;  // no tuple: count 0
  std::uint32_t tuple_at_ = 0;
  std::int64_t index_ = 0;
  pickle::CellCursor elements_;
  pickle::CellCursor items_;
};

// The call at the bottom of wrappers such as _rebuild_parameter, and what the wrappers said.
struct TensorCall {
  Rebuild function = Rebuild::none;
  const PackedCall* packed = nullptr;  // then `arguments` is not used
  Value arguments{nullptr, {}};
  std::uint32_t position = 0;
  bool is_parameter = false;
  std::optional<bool> requires_grad;
  std::vector<std::pair<std::int64_t, Value>> attachments;  // argument number, value to walk too
};

// The first tensors of a pickle and those in its last kilobyte are never packed.
std::size_t expected_tensors(const Tree& tree) noexcept {
  return tree.packed_count() + tree.packed_count() / 64 + 16;
}

class Reader {
 public:
  Reader(const Tree& tree, const ReadLimits& limits, std::pmr::memory_resource& memory)
      : tree_(tree),
        file_offset_(limits.file_offset),
        limits_(limits.limits),
        visits_left_((std::uint64_t{1} << 20) + 16 * tree.pickle().size()),
        table_(memory, expected_tensors(tree)) {}

  Result<TensorTable> run();

 private:
  using Status = Result<void>;

  // The walk. These answer false after setting error_, which is cheaper to return 100,000 times
  // than a Result.
  bool walk();
  bool visit(const Child& child, std::uint32_t path);
  bool visit_object(const Child& child, std::uint32_t path);
  bool visit_packed(const PackedCall& call, const Child& child, std::uint32_t path);
  bool visit_storage(const Child& child);
  bool enter(const Child& child, std::uint32_t path);
  bool add(TensorSpec& spec, const Child& child, std::uint32_t path);
  std::uint32_t child_path(const Child& child, std::uint32_t parent);
  [[gnu::cold]] bool fail(Error error) {
    error_ = std::move(error);
    return false;
  }
  [[gnu::cold]] bool fail(ErrorCode code, std::string message, std::uint32_t position = 0) {
    return fail(Error{code, std::move(message), file_offset_ + position, {}});
  }

  Status refuse_dangerous_globals() const;
  // False if the object is not a tensor that is known by its rebuild function.
  Result<bool> unwrap(const Value& object, TensorCall& call) const;
  Result<bool> unwrap_once(TensorCall& call) const;
  Result<TensorSpec> decode(const TensorCall& call);
  bool decode_packed(const PackedCall& call, const HeaderMeaning& meaning, TensorSpec& spec);
  Result<const HeaderMeaning*> meaning_of(const PackedCall& call);
  Result<HeaderMeaning> interpret(const PackedCall& call);
  Status read_storage(const Value& id, std::uint32_t position, TensorSpec& spec,
                      std::optional<StorageType>& type);
  Status read_dims(const Value& sizes, const Value& strides, std::uint32_t position,
                   TensorSpec& spec);
  Status read_flags(const TensorCall& call, TensorSpec& spec) const;
  bool check_dims(const TensorSpec& spec);
  Result<std::uint16_t> location_number(std::string_view location);
  // What the tensors so far take here and will take in the catalog, with its index.
  std::uint64_t table_bytes() const noexcept {
    constexpr std::uint64_t each = sizeof(TensorSpec) + 64 + 4 * sizeof(std::uint64_t);
    return table_.tensors.size() * each + table_.name_bytes +
           (table_.dim_count - shared_dims_) * sizeof(std::int64_t) +
           table_.path_parts * sizeof(std::uint32_t);
  }

  [[gnu::cold]] tl::unexpected<Error> corrupt(std::uint32_t position, std::string message) const {
    return failure(ErrorCode::corrupt, std::move(message), file_offset_ + position);
  }
  Value value(const Cell& cell) const noexcept { return {&tree_, cell}; }

  const Tree& tree_;
  std::uint64_t file_offset_;
  Limits limits_;
  std::uint64_t visits_left_;
  TensorTable table_;
  std::vector<Frame> frames_;
  std::deque<HeaderMeaning> meanings_;  // a handful; addresses stay
  const HeaderMeaning* last_meaning_ = nullptr;
  const std::int64_t* last_dims_ = nullptr;  // whose values were checked
  std::uint64_t shared_dims_ = 0;            // of dim_count, those that are stored once
  Error error_;
};

Result<TensorTable> Reader::run() {
  if (Status ok = refuse_dangerous_globals(); !ok) return tl::unexpected<Error>(ok.error());
  table_.paths.push_back({0, 0, {}, 0});
  if (!walk()) return tl::unexpected<Error>(std::move(error_));
  return std::move(table_);
}

bool Reader::walk() {
  Child child{{}, tree_.root(), false};
  if (!visit(child, TensorSpec::is_root)) return false;
  while (!frames_.empty()) {
    if (!frames_.back().next(child))
      frames_.pop_back();
    else if (!visit(child, frames_.back().path()))
      return false;
  }
  return true;
}

Result<void> Reader::refuse_dangerous_globals() const {
  for (const pickle::Global* global : tree_.globals())
    if (is_dangerous(global->module, global->name))
      return failure(
          ErrorCode::unsafe_pickle,
          "the pickle names " +
              bytes::escape(std::string(global->module) + "." + std::string(global->name)) +
              ", which no checkpoint needs; nothing was run",
          file_offset_ + global->position);
  return {};
}

bool Reader::visit(const Child& child, std::uint32_t path) {
  if (visits_left_-- == 0)
    return fail(ErrorCode::limit_exceeded,
                "the pickle refers to its own containers more often than is reasonable for its "
                "size");
  switch (pickle::kind_of(child.value)) {
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
      return true;
  }
}

// A storage that no tensor views: saved by itself, or the argument of a call that we do not know.
bool Reader::visit_storage(const Child& child) {
  const Value id = value(child.value).persistent_id();
  if (id.kind() != Value::Kind::tuple || id.size() != 5 || id[0].string() != "storage" ||
      !id[2].string() || !id[4].integer())
    return true;
  const std::optional<StorageType> type = storage_type(id[1].module(), id[1].name());
  if (!type) return true;
  const Result<std::uint32_t> number =
      table_.storages.intern(*id[2].string(), *id[4].integer(),
                             static_cast<std::uint32_t>(element_size(type->dtype)), file_offset_);
  return number || fail(number.error());
}

bool Reader::visit_object(const Child& child, std::uint32_t path) {
  if (const PackedCall* packed = pickle::packed_call(child.value))
    return visit_packed(*packed, child, path);
  if (child.value.part != pickle::whole_value) return true;  // hooks reached by themselves
  TensorCall call;
  const Result<bool> is_tensor = unwrap(value(child.value), call);
  if (!is_tensor) return fail(is_tensor.error());
  if (!*is_tensor) return enter(child, path);
  Result<TensorSpec> spec = decode(call);
  if (!spec) return fail(spec.error());
  spec->position = *pickle::position_of(child.value);  // the outermost wrapper is the tensor
  if (!add(*spec, child, path)) return false;
  if (call.attachments.empty()) return true;
  const std::uint32_t node = child_path(child, path);
  for (const auto& [number, attached] : call.attachments)
    if (!visit({pickle::make_integer(number), attached.cell(), true}, node)) return false;
  return true;
}

bool Reader::visit_packed(const PackedCall& call, const Child& child, std::uint32_t path) {
  if (last_meaning_ == nullptr || last_meaning_->header != call.header) {
    const Result<const HeaderMeaning*> meaning = meaning_of(call);
    if (!meaning) return fail(meaning.error());
    last_meaning_ = *meaning;
  }
  if (!last_meaning_->is_tensor) return true;  // nothing inside such a call can be a tensor
  TensorSpec spec;
  return decode_packed(call, *last_meaning_, spec) && add(spec, child, path);
}

bool Reader::enter(const Child& child, std::uint32_t path) {
  const Value container = value(child.value);
  const bool can_hold_itself = container.kind() != Value::Kind::tuple;
  if (can_hold_itself)
    for (const Frame& open : frames_)
      if (open.value().is_same_as(container)) return true;  // a cycle; its tensors are listed above
  if (frames_.size() > std::size_t{4} * limits_.depth)
    return fail(ErrorCode::limit_exceeded,
                "the pickle nests deeper than " + std::to_string(limits_.depth) + " containers");
  frames_.emplace_back(container, child_path(child, path));
  return true;
}

// The state of an object is walked under the object's own path: a module's tensors are called by
// the attributes that hold them.
std::uint32_t Reader::child_path(const Child& child, std::uint32_t parent) {
  if (parent == TensorSpec::is_root) return 0;
  if (!child.has_key) return parent;
  const PathNode& above = table_.paths[parent];
  const std::size_t length = KeyText(tree_, child.key).text().size();
  table_.paths.push_back({parent, above.depth + 1, child.key, above.prefix_bytes + length + 1});
  return static_cast<std::uint32_t>(table_.paths.size() - 1);
}

Result<bool> Reader::unwrap(const Value& object, TensorCall& call) const {
  Value current = object;
  // Wrappers are at most a few deep in real files; the depth of the tree bounds hostile ones.
  while (true) {
    call.packed = pickle::packed_call(current.cell());
    if (call.packed != nullptr) return true;
    const auto* node = pickle::target_of<const pickle::Object>(current.cell());
    const Value callable = current.callable();
    call.function = rebuild_function(callable.module(), callable.name());
    if (call.function == Rebuild::none || current.is_new_object()) return false;
    call.arguments = current.arguments();
    call.position = node->position;
    if (current.size() + current.item_count() != 0 || current.state())
      return failure(
          ErrorCode::unsafe_pickle,
          "the pickle changes a tensor made by " + qualified(callable) + " after making it",
          file_offset_ + node->position);
    const Result<bool> wrapped = unwrap_once(call);
    if (!wrapped) return wrapped;
    if (!*wrapped) return call.function != Rebuild::none;
    current = call.arguments[0];
    if (current.kind() != Value::Kind::object || current.cell().part > pickle::packed_object)
      return corrupt(call.position, "a wrapper such as _rebuild_parameter holds a " +
                                        std::string(to_string(current.kind())) +
                                        " instead of a tensor");
  }
}

// True if arguments[0] is the tensor that this call wraps. Turns from_type_v2 into the call it
// names.
Result<bool> Reader::unwrap_once(TensorCall& call) const {
  const std::size_t count = call.arguments.size();
  switch (call.function) {
    case Rebuild::from_type_v2: {
      if (count != 4 || call.arguments[0].kind() != Value::Kind::global ||
          call.arguments[2].kind() != Value::Kind::tuple)
        return corrupt(call.position, "_rebuild_from_type_v2 has unexpected arguments");
      call.attachments.emplace_back(3, call.arguments[3]);
      const Value function = call.arguments[0];
      call.function = rebuild_function(function.module(), function.name());
      call.arguments = call.arguments[2];
      if (call.function == Rebuild::none || call.function == Rebuild::from_type_v2) {
        call.function = Rebuild::none;
        return false;
      }
      return unwrap_once(call);
    }
    case Rebuild::parameter_with_state:
      if (count == 4) call.attachments.emplace_back(3, call.arguments[3]);
      [[fallthrough]];
    case Rebuild::parameter:
      if (count < 3 || !call.arguments[1].boolean())
        return corrupt(call.position, "_rebuild_parameter has unexpected arguments");
      call.is_parameter = true;
      if (!call.requires_grad) call.requires_grad = call.arguments[1].boolean();
      return true;
    case Rebuild::device_tensor_from_cpu:
      if (count < 1)
        return corrupt(call.position, "_rebuild_device_tensor_from_cpu_tensor has no arguments");
      return true;
    case Rebuild::qtensor:
      if (count > 4) call.attachments.emplace_back(4, call.arguments[4]);
      return false;
    default:
      return false;
  }
}

Result<TensorSpec> Reader::decode(const TensorCall& call) {
  const auto apply_wrappers = [&call](TensorSpec& spec) {
    if (call.is_parameter) spec.flags |= TensorSpec::parameter;
    if (!call.requires_grad) return;
    spec.flags =
        static_cast<std::uint8_t>(*call.requires_grad ? spec.flags | TensorSpec::requires_grad
                                                      : spec.flags & ~TensorSpec::requires_grad);
  };
  if (call.packed != nullptr) {
    const Result<const HeaderMeaning*> meaning = meaning_of(*call.packed);
    if (!meaning) return tl::unexpected<Error>(meaning.error());
    if (!(*meaning)->is_tensor)
      return corrupt(call.packed->position, "a parameter wraps something that is not a tensor");
    TensorSpec spec;
    if (!decode_packed(*call.packed, **meaning, spec)) return tl::unexpected<Error>(error_);
    apply_wrappers(spec);
    return spec;
  }
  const std::size_t least = call.function == Rebuild::tensor ? 4 : 6;
  if (call.arguments.size() < least || call.arguments.size() > 8)
    return corrupt(call.position, "a tensor is rebuilt with " +
                                      std::to_string(call.arguments.size()) +
                                      " arguments, expected " + std::to_string(least) + " to 8");
  TensorSpec spec{};
  spec.position = call.position;
  std::optional<StorageType> type;
  if (Status ok = read_storage(call.arguments[0], call.position, spec, type); !ok)
    return tl::unexpected<Error>(ok.error());
  const std::optional<std::int64_t> offset = call.arguments[1].integer();
  if (!offset || *offset < 0)
    return corrupt(call.position, "a tensor's storage offset is not a number from 0 on");
  spec.storage_offset = *offset;
  spec.dtype = type->dtype;
  if (Status ok = read_dims(call.arguments[2], call.arguments[3], call.position, spec); !ok)
    return tl::unexpected<Error>(ok.error());
  if (Status ok = read_flags(call, spec); !ok) return tl::unexpected<Error>(ok.error());
  apply_wrappers(spec);
  return spec;
}

bool Reader::decode_packed(const PackedCall& call, const HeaderMeaning& meaning, TensorSpec& spec) {
  if (call.size_count != call.stride_count || call.storage_offset < 0)
    return fail(ErrorCode::corrupt,
                "a tensor has " + std::to_string(call.size_count) + " sizes, " +
                    std::to_string(call.stride_count) + " strides and storage offset " +
                    std::to_string(call.storage_offset),
                call.position);
  spec.dims = call.dims;
  spec.storage_offset = call.storage_offset;
  spec.position = call.position;
  spec.location = meaning.location;
  spec.dtype = meaning.dtype;
  spec.rank = call.size_count;
  spec.flags = call.requires_grad ? TensorSpec::requires_grad : 0;
  const std::string_view key = tree_.text(call.key_position, call.key_length);
  if (const auto next =
          table_.storages.intern_next(key, call.numel, meaning.storage_element_size)) {
    spec.storage = *next;
    return true;
  }
  const Result<std::uint32_t> storage = table_.storages.intern(
      key, call.numel, meaning.storage_element_size, file_offset_ + call.position);
  if (!storage) return fail(storage.error());
  spec.storage = *storage;
  return true;
}

Result<const HeaderMeaning*> Reader::meaning_of(const PackedCall& call) {
  for (const HeaderMeaning& known : meanings_)
    if (known.header == call.header) return &known;
  const Result<HeaderMeaning> meaning = interpret(call);
  if (!meaning) return tl::unexpected<Error>(meaning.error());
  meanings_.push_back(*meaning);
  return &meanings_.back();
}

Result<HeaderMeaning> Reader::interpret(const PackedCall& call) {
  const PackedHeader& header = *call.header;
  const Value callable = value(header.callable);
  const Rebuild function = rebuild_function(callable.module(), callable.name());
  HeaderMeaning meaning{&header, false, DType::uint8, 1, 0};
  meaning.is_tensor = function == Rebuild::tensor_v2 || function == Rebuild::tensor_v3;
  if (!meaning.is_tensor) return meaning;
  const Value type = value(header.type);
  const std::optional<StorageType> storage = storage_type(type.module(), type.name());
  if (value(header.tag).string() != "storage" || !storage)
    return failure(ErrorCode::unsupported,
                   "a tensor lies in a storage of unknown type " + qualified(type),
                   file_offset_ + call.position);
  const Value hooks = value(header.hooks_callable);
  if (!is_ordered_dict(hooks.module(), hooks.name()))
    return failure(ErrorCode::unsafe_pickle, "a tensor's backward hooks name " + qualified(hooks),
                   file_offset_ + call.position);
  const bool has_extra = header.ids.extra != PackedHeader::no_id;
  std::optional<DType> dtype = storage->dtype;
  if (function == Rebuild::tensor_v3) {
    const Value extra = value(header.extra);
    dtype = dtype_global(extra.module(), extra.name());
  }
  if (!dtype || has_extra != (function == Rebuild::tensor_v3))
    return corrupt(call.position, "a tensor is rebuilt with an unknown dtype");
  const Result<std::uint16_t> location = location_number(*value(header.location).string());
  if (!location) return tl::unexpected<Error>(location.error());
  meaning.dtype = *dtype;
  meaning.storage_element_size = static_cast<std::uint32_t>(element_size(storage->dtype));
  meaning.location = *location;
  return meaning;
}

Result<void> Reader::read_storage(const Value& reference, std::uint32_t position, TensorSpec& spec,
                                  std::optional<StorageType>& type) {
  const Value id = reference.persistent_id();
  if (id.kind() != Value::Kind::tuple || id.size() != 5 || id[0].string() != "storage")
    return corrupt(position, "a tensor's storage is a " + std::string(to_string(reference.kind())) +
                                 ", expected a persistent id of five fields that begins with "
                                 "\"storage\"");
  if (id[1].kind() == Value::Kind::global) type = storage_type(id[1].module(), id[1].name());
  if (!type)
    return failure(ErrorCode::unsupported,
                   "a tensor lies in a storage of unknown type " +
                       (id[1].kind() == Value::Kind::global ? qualified(id[1])
                                                            : std::string(to_string(id[1].kind()))),
                   file_offset_ + position);
  const std::optional<std::string_view> key = id[2].string();
  const std::optional<std::int64_t> numel = id[4].integer();
  if (!key || !numel)
    return corrupt(position, "a storage reference has no text key or no number of elements");
  Result<std::uint16_t> location = location_number(id[3].string().value_or(std::string_view{}));
  if (!location) return tl::unexpected<Error>(location.error());
  spec.location = *location;
  Result<std::uint32_t> storage = table_.storages.intern(
      *key, *numel, static_cast<std::uint32_t>(element_size(type->dtype)), file_offset_ + position);
  if (!storage) return tl::unexpected<Error>(storage.error());
  spec.storage = *storage;
  return {};
}

Result<void> Reader::read_dims(const Value& sizes, const Value& strides, std::uint32_t position,
                               TensorSpec& spec) {
  // A torch.Size instead of a plain tuple is a call of torch.Size with the tuple.
  const auto plain = [](const Value& dims) {
    const bool is_size = dims.kind() == Value::Kind::object && dims.callable().name() == "Size" &&
                         dims.arguments().size() == 1;
    return is_size ? dims.arguments()[0] : dims;
  };
  const Value plain_sizes = plain(sizes);
  if (plain_sizes.kind() != Value::Kind::tuple || strides.kind() != Value::Kind::tuple ||
      plain_sizes.size() != strides.size())
    return corrupt(position, "a tensor has " + std::to_string(plain_sizes.size()) + " sizes and " +
                                 std::to_string(strides.size()) + " strides");
  if (plain_sizes.size() > std::min<std::uint32_t>(limits_.rank, 255))
    return failure(ErrorCode::limit_exceeded,
                   "a tensor has " + std::to_string(plain_sizes.size()) +
                       " dimensions, the limit is " + std::to_string(limits_.rank),
                   file_offset_ + position);
  std::vector<std::int64_t>& dims = table_.owned_dims.emplace_back();
  dims.reserve(2 * plain_sizes.size());
  for (const Value& from : {plain_sizes, strides}) {
    for (const Value& dim : from.elements()) {
      if (!dim.integer())
        return corrupt(position, "a tensor's size or stride is a " +
                                     std::string(to_string(dim.kind())) + ", expected an integer");
      dims.push_back(*dim.integer());
    }
  }
  spec.rank = static_cast<std::uint8_t>(plain_sizes.size());
  spec.dims = dims.data();
  return {};
}

// Arguments behind the strides: requires_grad, hooks, dtype, metadata, as the function has them.
Result<void> Reader::read_flags(const TensorCall& call, TensorSpec& spec) const {
  if (call.function == Rebuild::tensor) return {};
  const Value& arguments = call.arguments;
  const std::size_t first = call.function == Rebuild::qtensor ? 5 : 4;
  std::size_t metadata = first + 2;
  if (call.function == Rebuild::tensor_v3) {
    ++metadata;
    const Value dtype = arguments.size() > 6 ? arguments[6] : value({});
    const std::optional<DType> known = dtype_global(dtype.module(), dtype.name());
    if (!known) return corrupt(call.position, "a tensor is rebuilt with an unknown dtype");
    spec.dtype = *known;
  }
  if (arguments.size() < first + 2 || arguments.size() > metadata + 1)
    return corrupt(call.position,
                   "a tensor is rebuilt with " + std::to_string(arguments.size()) + " arguments");
  if (!arguments[first].boolean())
    return corrupt(call.position, "a tensor's requires_grad is a " +
                                      std::string(to_string(arguments[first].kind())));
  if (*arguments[first].boolean()) spec.flags |= TensorSpec::requires_grad;
  const Value hooks = arguments[first + 1];
  const Value hooks_type = hooks.callable();
  const bool empty = hooks.item_count() == 0 && hooks.size() == 0 && !hooks.state() &&
                     (hooks.is_none() || hooks.kind() == Value::Kind::dict ||
                      is_ordered_dict(hooks_type.module(), hooks_type.name()));
  if (!empty)
    return failure(ErrorCode::unsafe_pickle, "a tensor has backward hooks, which are code",
                   file_offset_ + call.position);
  if (arguments.size() <= metadata) return {};
  const auto is_set = [&](std::string_view name) {
    const std::optional<Value> bit = arguments[metadata].find(name);
    return bit && bit->boolean().value_or(false);
  };
  if (is_set("conj")) spec.flags |= TensorSpec::conjugate;
  if (is_set("neg")) spec.flags |= TensorSpec::negative;
  return {};
}

bool Reader::check_dims(const TensorSpec& spec) {
  if (spec.dims == last_dims_) {  // shared by the tensors of one shape
    shared_dims_ += std::uint64_t{2} * spec.rank;
    return true;
  }
  for (std::size_t i = 0; i < std::size_t{2} * spec.rank; ++i)
    if (spec.dims[i] < 0)
      return fail(ErrorCode::corrupt,
                  std::string("a tensor has ") + (i < spec.rank ? "size " : "stride ") +
                      std::to_string(spec.dims[i]) + " in dimension " +
                      std::to_string(i % spec.rank),
                  spec.position);
  last_dims_ = spec.dims;
  return true;
}

Result<std::uint16_t> Reader::location_number(std::string_view location) {
  for (std::size_t i = 0; i < table_.locations.size(); ++i)
    if (table_.locations[i] == location) return static_cast<std::uint16_t>(i);
  constexpr std::size_t max_locations = 1024;
  if (table_.locations.size() == max_locations)
    return failure(ErrorCode::limit_exceeded,
                   "the pickle names more than " + std::to_string(max_locations) + " locations");
  table_.locations.push_back(location);
  return static_cast<std::uint16_t>(table_.locations.size() - 1);
}

bool Reader::add(TensorSpec& spec, const Child& child, std::uint32_t path) {
  if (!check_dims(spec)) return false;
  if (table_.tensors.size() == limits_.tensors)
    return fail(ErrorCode::limit_exceeded,
                "the pickle has more than " + std::to_string(limits_.tensors) + " tensors",
                spec.position);
  spec.path = path;
  // A tensor that is the state of an object has no key of its own: the empty one.
  spec.key = child.has_key ? child.key : pickle::make_cell(Value::Kind::string, std::uint64_t{0});
  if (path != TensorSpec::is_root) {
    const PathNode& parent = table_.paths[path];
    const bool is_text = pickle::kind_of(spec.key) == Value::Kind::string;
    table_.name_bytes +=
        parent.prefix_bytes + (is_text ? spec.key.count : KeyText(tree_, spec.key).text().size());
    if (parent.depth > 0 || pickle::kind_of(spec.key) == Value::Kind::integer)
      table_.path_parts += parent.depth + 1;
  }
  table_.dim_count += std::uint64_t{2} * spec.rank;
  // A shared container is listed each time it is reached, so few bytes could ask for many tensors.
  if (table_bytes() > limits_.base_memory + 2 * tree_.pickle().size())
    return fail(ErrorCode::limit_exceeded,
                "the names and shapes of the tensors need more memory than " +
                    std::to_string(limits_.base_memory) + " bytes and twice the pickle",
                spec.position);
  table_.tensors.push_back(spec);
  return true;
}

std::string_view kind_as_key(Value::Kind kind) noexcept {
  switch (kind) {
    case Value::Kind::none:
      return "<none>";
    case Value::Kind::boolean:
      return "<bool>";
    case Value::Kind::real:
      return "<float>";
    case Value::Kind::tuple:
      return "<tuple>";
    default:
      return "<key>";
  }
}

}  // namespace

void KeyText::spell(const Cell& key) noexcept {
  if (!is_integer_) {
    borrowed_ = kind_as_key(pickle::kind_of(key));
    return;
  }
  const auto number = static_cast<std::int64_t>(key.payload);
  length_ = static_cast<std::size_t>(std::to_chars(digits_, digits_ + sizeof digits_, number).ptr -
                                     digits_);
}

Result<TensorTable> read_tensors(const Tree& tree, const ReadLimits& limits,
                                 std::pmr::memory_resource& memory) {
  return Reader(tree, limits, memory).run();
}

}  // namespace weightmap::torch
