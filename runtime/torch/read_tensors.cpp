#include "runtime/torch/read_tensors.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <unordered_map>

#include "runtime/base/try.hpp"
#include "runtime/bytes/counted.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/torch/equal_key.hpp"
#include "runtime/torch/names.hpp"
#include "runtime/torch/walk_frame.hpp"

namespace weightmap::torch {
namespace {

using value::Cell;
using value::PackedCall;
using value::PackedHeader;
using value::Tree;

[[gnu::cold]] std::string qualified(const Value& global) {
  return bytes::escape(std::string(global.module()) + "." + std::string(global.name()));
}

// "an object", "a tuple".
[[gnu::cold]] std::string with_article(Value::Kind kind) {
  const std::string name(to_string(kind));
  return (std::string_view("aeiou").find(name.front()) == std::string_view::npos ? "a " : "an ") +
         name;
}

bool is_torch_class(std::string_view module) noexcept {
  return module == "torch" || module.starts_with("torch.");
}

// What the calls with one PackedHeader have in common, worked out once.
struct HeaderMeaning {
  const PackedHeader* header;
  bool is_tensor;
  DType dtype;
  DType storage_dtype;
  std::uint32_t storage_element_size;
  std::uint16_t location;
};

// An object that turned out to be a tensor. Worked out once, however often it is mentioned.
struct Decoded {
  TensorSpec spec;
  std::vector<Attachment> attachments;
};

// The call at the bottom of wrappers such as _rebuild_parameter, and what the wrappers said.
struct TensorCall {
  Rebuild function = Rebuild::none;
  const PackedCall* packed = nullptr;  // then `arguments` is not used
  Value arguments{nullptr, {}};
  std::uint32_t position = 0;
  bool is_parameter = false;
  std::optional<bool> requires_grad;
  std::optional<DType> converted_to;  // of device tensors; what a view shows is not converted
  std::vector<Attachment> attachments;
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
        work_left_((std::uint64_t{1} << 20) + 4 * tree.pickle().size()),
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
  bool visit_decoded(std::uint32_t number, const Child& child, std::uint32_t path);
  bool visit_storage(const Child& child);
  bool enter(const Child& child, std::uint32_t path);
  bool push(const Value& container, const Child& child, std::uint32_t path);
  bool leave();
  bool check_depth();
  bool check_memory(std::uint64_t more, std::uint32_t position);
  bool add(TensorSpec& spec, const Child& child, std::uint32_t path);
  std::uint32_t child_path(const Child& child, std::uint32_t parent);
  // Everything that is looked at costs a little of a budget that grows with the pickle, so that few
  // bytes that are mentioned often cannot keep an open busy. False once it is spent.
  bool spend(std::uint64_t work) {
    if (work > work_left_) return fail_budget();
    work_left_ -= work;
    return true;
  }
  [[gnu::cold]] bool fail_budget();
  Status spent(std::uint64_t work) {
    if (spend(work)) return {};
    return tl::unexpected<Error>(error_);
  }
  [[gnu::cold]] bool fail(Error error) {
    error_ = std::move(error);
    return false;
  }
  [[gnu::cold]] bool fail(ErrorCode code, std::string message, std::uint32_t position = 0) {
    return fail(Error{code, std::move(message), file_offset_ + position, {}});
  }

  Status refuse_harmful_globals() const;
  // False if the object is not a tensor that is known by its rebuild function.
  Result<bool> unwrap(const Value& object, TensorCall& call);
  Result<bool> unwrap_once(TensorCall& call);
  Status attach_state(TensorCall& call, std::size_t argument);
  Status check_state(const Value& state, std::uint32_t position);
  Result<TensorSpec> decode(const TensorCall& call);
  bool decode_packed(const PackedCall& call, const HeaderMeaning& meaning, TensorSpec& spec);
  Result<const HeaderMeaning*> meaning_of(const PackedCall& call);
  Result<HeaderMeaning> interpret(const PackedCall& call);
  Status read_storage(const Value& id, std::uint32_t position, TensorSpec& spec,
                      std::optional<StorageType>& type);
  Status read_dims(const Value& sizes, const Value& strides, std::uint32_t position,
                   TensorSpec& spec);
  Status read_flags(const TensorCall& call, TensorSpec& spec);
  Status read_metadata(const Value& metadata, std::uint32_t position, TensorSpec& spec);
  Result<std::uint32_t> intern(std::string_view key, std::int64_t numel, DType dtype,
                               std::uint32_t position);
  // Refuses a container of the walk whose items hold a key twice, but for two tensors under texts
  // or integers: those have one name, which the catalog notices.
  bool check_keys(const Value& container);
  bool is_tensor(const Cell& cell);
  Result<std::uint16_t> location_number(std::string_view location);
  // What the tensors so far take here and will take in the catalog, with its index.
  std::uint64_t table_bytes() const noexcept {
    constexpr std::uint64_t each = sizeof(TensorSpec) + 64 + 4 * sizeof(std::uint64_t);
    return table_.tensors.size() * each + table_.name_bytes +
           table_.paths.size() * sizeof(PathNode) + decoded_bytes_ +
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
  std::uint64_t work_left_;  // see spend()
  TensorTable table_;
  std::vector<Frame> frames_;
  std::deque<Decoded> decoded_;  // addresses stay
  std::uint64_t decoded_bytes_ = 0;
  std::unordered_map<std::string_view, std::uint16_t> location_numbers_;
  std::uint64_t cuts_ = 0;              // containers that were met inside themselves
  std::deque<HeaderMeaning> meanings_;  // a handful; addresses stay
  const HeaderMeaning* last_meaning_ = nullptr;
  const std::int64_t* last_dims_ = nullptr;  // shared by neighbours of one shape
  std::uint64_t shared_dims_ = 0;            // of dim_count, those that are stored once
  Error error_;
};

Result<TensorTable> Reader::run() {
  TRY(refuse_harmful_globals());
  table_.paths.push_back({});
  if (!walk()) return tl::unexpected<Error>(std::move(error_));
  return std::move(table_);
}

bool Reader::walk() {
  Child child{{}, tree_.root(), false};
  if (!visit(child, TensorSpec::is_root)) return false;
  while (!frames_.empty())
    if (!(frames_.back().next(child) ? visit(child, frames_.back().path()) : leave())) return false;
  return true;
}

bool Reader::fail_budget() {
  return fail(ErrorCode::limit_exceeded,
              "the pickle refers to its own values more often than is reasonable for its size");
}

Result<void> Reader::refuse_harmful_globals() const {
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

bool Reader::visit(const Child& child, std::uint32_t path) {
  if (!spend(1)) return false;
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
      if (!frames_.empty()) frames_.back().note_other_item();
      return true;
  }
}

// A storage that no tensor views: saved by itself, or the argument of a call that we do not know.
bool Reader::visit_storage(const Child& child) {
  if (!frames_.empty()) frames_.back().note_other_item();
  const Value id = value(child.value).persistent_id();
  if (id.kind() != Value::Kind::tuple || id.size() != 5 || id[0].string() != "storage" ||
      !id[2].string() || !id[4].integer())
    return true;
  const std::optional<StorageType> type = storage_type(id[1].module(), id[1].name());
  if (!type) return true;
  const Result<std::uint32_t> number = intern(*id[2].string(), *id[4].integer(), type->dtype, 0);
  return number || fail(number.error());
}

Result<std::uint32_t> Reader::intern(std::string_view key, std::int64_t numel, DType dtype,
                                     std::uint32_t position) {
  TRY(spent(key.size() / 64));
  return table_.storages.intern(key, numel, dtype, file_offset_ + position);
}

bool Reader::visit_object(const Child& child, std::uint32_t path) {
  std::uint32_t* const mark = mark_of(child.value);
  if (mark == nullptr) {  // hooks reached by themselves
    if (!frames_.empty()) frames_.back().note_other_item();
    return true;
  }
  if (*mark >= first_decoded) {
    table_.storages.count_hit();
    return visit_decoded(*mark - first_decoded, child, path);
  }
  if (*mark != mark_unknown) return enter(child, path);
  TensorCall call;
  const Result<bool> is_tensor = unwrap(value(child.value), call);
  if (!is_tensor) return fail(is_tensor.error());
  if (!*is_tensor) return enter(child, path);
  Result<TensorSpec> spec = decode(call);
  if (!spec) return fail(spec.error());
  spec->position = *value::position_of(child.value);  // the outermost wrapper is the tensor
  const auto number = static_cast<std::uint32_t>(decoded_.size());
  decoded_.push_back({*spec, std::move(call.attachments)});
  decoded_bytes_ += sizeof(Decoded);
  *mark = first_decoded + number;
  return visit_decoded(number, child, path);
}

bool Reader::visit_decoded(std::uint32_t number, const Child& child, std::uint32_t path) {
  const Decoded& decoded = decoded_[number];
  TensorSpec spec = decoded.spec;
  if (!add(spec, child, path)) return false;
  if (decoded.attachments.empty()) return true;
  if (!check_depth()) return false;
  const Frame::Before before{table_.tensors.size(), table_.paths.size(), cuts_};
  frames_.emplace_back(decoded.attachments, child_path(child, path), before);
  return true;
}

bool Reader::visit_packed(const PackedCall& call, const Child& child, std::uint32_t path) {
  if (last_meaning_ == nullptr || last_meaning_->header != call.header) {
    const Result<const HeaderMeaning*> meaning = meaning_of(call);
    if (!meaning) return fail(meaning.error());
    last_meaning_ = *meaning;
  }
  if (!last_meaning_->is_tensor) {  // nothing inside such a call can be a tensor
    if (!frames_.empty()) frames_.back().note_other_item();
    return true;
  }
  TensorSpec spec;
  return decode_packed(call, *last_meaning_, spec) && add(spec, child, path);
}

bool Reader::check_depth() {
  if (frames_.size() < limits_.depth) return true;
  return fail(ErrorCode::limit_exceeded,
              "the pickle nests deeper than " + std::to_string(limits_.depth) + " containers");
}

bool Reader::enter(const Child& child, std::uint32_t path) {
  if (!frames_.empty()) frames_.back().note_other_item();
  if (std::uint32_t* const mark = mark_of(child.value)) {
    if (*mark == mark_barren) return true;
    if (*mark == mark_open) {  // a cycle; its tensors are listed above
      ++cuts_;
      return true;
    }
    *mark = mark_open;
  }
  if (!check_depth()) return false;
  const Value container = value(child.value);
  const Frame::Before before{table_.tensors.size(), table_.paths.size(), cuts_};
  const std::uint32_t own_path = child_path(child, path);
  const Value callable = container.callable();
  table_.paths[own_path].keys_are_unique =
      container.kind() == Value::Kind::dict || is_dict_class(callable.module(), callable.name());
  frames_.emplace_back(container, own_path, before);
  return true;
}

// What leads to no tensor leaves no path and is not walked again; but inside a cycle something may
// have been left out.
bool Reader::leave() {
  const Frame& frame = frames_.back();
  const Frame::Before& before = frame.before();
  const bool barren = table_.tensors.size() == before.tensors;
  if (!barren && frame.has_other_items() && table_.paths[frame.path()].keys_are_unique &&
      !check_keys(frame.value()))
    return false;
  if (std::uint32_t* const mark = mark_of(frame.value().cell()))
    *mark = barren && cuts_ == before.cuts ? mark_barren : mark_unknown;
  if (barren) table_.paths.resize(before.paths);
  frames_.pop_back();
  return true;
}

// The state of an object is walked under the object's own path: a module's tensors are called by
// the attributes that hold them. It still has a node of its own, since an item and an attribute of
// one name are two things.
std::uint32_t Reader::child_path(const Child& child, std::uint32_t parent) {
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

bool Reader::is_tensor(const Cell& cell) {
  if (const PackedCall* packed = value::packed_call(cell)) {
    const Result<const HeaderMeaning*> meaning = meaning_of(*packed);
    return meaning && (*meaning)->is_tensor;
  }
  const std::uint32_t* const mark = mark_of(cell);
  return mark != nullptr && *mark >= first_decoded;
}

bool Reader::check_keys(const Value& container) {
  const auto items = [&](auto visit) {
    for (const auto& [key, item] : container.items()) {
      const Value::Kind kind = key.kind();
      const bool has_name = kind == Value::Kind::string || kind == Value::Kind::integer;
      visit(key.cell(), has_name && is_tensor(item.cell()));
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
bool Reader::check_memory(std::uint64_t more, std::uint32_t position) {
  if (table_bytes() + more <= limits_.base_memory + 2 * tree_.pickle().size()) return true;
  return fail(ErrorCode::limit_exceeded,
              "the names and shapes of the tensors need more memory than " +
                  std::to_string(limits_.base_memory) + " bytes and twice the pickle",
              position);
}

Result<bool> Reader::unwrap(const Value& object, TensorCall& call) {
  Value current = object;
  // Wrappers are at most a few deep in real files; the depth of the tree bounds hostile ones.
  while (true) {
    TRY(spent(1));
    call.packed = value::packed_call(current.cell());
    if (call.packed != nullptr) return true;
    const auto* node = value::target_of<const value::Object>(current.cell());
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
    TRY_ASSIGN(const bool wrapped, unwrap_once(call));
    if (!wrapped) return call.function != Rebuild::none;
    current = call.arguments[0];
    if (current.kind() != Value::Kind::object || current.cell().part > value::packed_object)
      return corrupt(call.position, "a wrapper such as _rebuild_parameter holds " +
                                        with_article(current.kind()) + " instead of a tensor");
  }
}

// True if arguments[0] is the tensor that this call wraps. Turns from_type_v2 into the call it
// names.
Result<bool> Reader::unwrap_once(TensorCall& call) {
  const std::size_t count = call.arguments.size();
  switch (call.function) {
    case Rebuild::from_type_v2: {
      if (count != 4 || call.arguments[0].kind() != Value::Kind::global ||
          call.arguments[2].kind() != Value::Kind::tuple)
        return corrupt(call.position, "_rebuild_from_type_v2 has unexpected arguments");
      const Value function = call.arguments[0];
      // A class of somebody else's may take its state in any way; those of torch set attributes.
      if (is_torch_class(call.arguments[1].module()))
        TRY(attach_state(call, 3));
      else
        call.attachments.push_back({3, call.arguments[3].cell()});
      call.function = rebuild_function(function.module(), function.name());
      call.arguments = call.arguments[2];
      if (call.function == Rebuild::none || call.function == Rebuild::from_type_v2) {
        call.function = Rebuild::none;
        return false;
      }
      return unwrap_once(call);
    }
    case Rebuild::parameter_with_state:
      if (count == 4) TRY(attach_state(call, 3));
      [[fallthrough]];
    case Rebuild::parameter:
      if (count < 3 || !call.arguments[1].boolean())
        return corrupt(call.position, "_rebuild_parameter has unexpected arguments");
      call.is_parameter = true;
      if (!call.requires_grad) call.requires_grad = call.arguments[1].boolean();
      return true;
    case Rebuild::device_tensor_from_cpu: {
      const bool complete = count == 4 && call.arguments[3].boolean();
      const Value dtype = complete ? call.arguments[1] : value({});
      call.converted_to = dtype_global(dtype.module(), dtype.name());
      if (!call.converted_to)
        return corrupt(call.position,
                       "_rebuild_device_tensor_from_cpu_tensor has unexpected arguments");
      if (!call.requires_grad) call.requires_grad = call.arguments[3].boolean();
      return true;
    }
    case Rebuild::qtensor:
      if (count > 4) call.attachments.push_back({4, call.arguments[4].cell()});
      return false;
    default:
      return false;
  }
}

Result<void> Reader::attach_state(TensorCall& call, std::size_t argument) {
  const Value state = call.arguments[argument];
  call.attachments.push_back({static_cast<std::int64_t>(argument), state.cell()});
  if (state.kind() != Value::Kind::tuple || state.size() != 2)
    return check_state(state, call.position);
  TRY(check_state(state[0], call.position));
  return check_state(state[1], call.position);
}

// torch sets each item as an attribute of the tensor.
Result<void> Reader::check_state(const Value& state, std::uint32_t position) {
  TRY(spent(state.item_count()));
  const Value arguments = state.arguments();
  const Value type = state.callable();
  if (is_ordered_dict(type.module(), type.name()) && arguments.size() != 0)
    return failure(ErrorCode::unsafe_pickle,
                   "a tensor's attributes are set from an OrderedDict that is made of pairs",
                   file_offset_ + position);
  for (const auto& [key, item] : state.items())
    if (is_tensor_property(key.string().value_or("")))
      return failure(
          ErrorCode::unsafe_pickle,
          "the pickle sets " + bytes::quote(*key.string()) + " of a tensor after making it",
          file_offset_ + position);
  return {};
}

Result<TensorSpec> Reader::decode(const TensorCall& call) {
  const auto wrapped = [&](TensorSpec& spec) -> Result<TensorSpec> {
    if (call.converted_to && *call.converted_to != spec.dtype)
      return failure(ErrorCode::unsupported,
                     "a tensor is converted from " + std::string(to_string(spec.dtype)) + " to " +
                         std::string(to_string(*call.converted_to)) + " when it is loaded",
                     file_offset_ + call.position);
    if (call.is_parameter) spec.flags |= TensorSpec::parameter;
    if (!call.requires_grad) return spec;
    spec.flags =
        static_cast<std::uint8_t>(*call.requires_grad ? spec.flags | TensorSpec::requires_grad
                                                      : spec.flags & ~TensorSpec::requires_grad);
    return spec;
  };
  if (call.packed != nullptr) {
    TRY_ASSIGN(const HeaderMeaning* meaning, meaning_of(*call.packed));
    if (!meaning->is_tensor)
      return corrupt(call.packed->position, "a parameter wraps something that is not a tensor");
    TensorSpec spec;
    if (!decode_packed(*call.packed, *meaning, spec)) return tl::unexpected<Error>(error_);
    return wrapped(spec);
  }
  const std::size_t least = call.function == Rebuild::tensor ? 4 : 6;
  if (call.arguments.size() < least || call.arguments.size() > 8)
    return corrupt(call.position, "a tensor is rebuilt with " +
                                      bytes::counted(call.arguments.size(), "argument") +
                                      ", expected " + std::to_string(least) + " to 8");
  TensorSpec spec{};
  spec.position = call.position;
  std::optional<StorageType> type;
  TRY(read_storage(call.arguments[0], call.position, spec, type));
  const std::optional<std::int64_t> offset = call.arguments[1].integer();
  if (!offset || *offset < 0)
    return corrupt(call.position, "a tensor's storage offset is not a number from 0 on");
  spec.storage_offset = *offset;
  spec.dtype = type->dtype;
  TRY(read_dims(call.arguments[2], call.arguments[3], call.position, spec));
  TRY(read_flags(call, spec));
  return wrapped(spec);
}

bool Reader::decode_packed(const PackedCall& call, const HeaderMeaning& meaning, TensorSpec& spec) {
  if (call.size_count != call.stride_count || call.storage_offset < 0)
    return fail(ErrorCode::corrupt,
                "a tensor has " + bytes::counted(call.size_count, "size") + ", " +
                    bytes::counted(call.stride_count, "stride") + " and storage offset " +
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
  if (const auto next = table_.storages.intern_next(key, call.numel, meaning.storage_dtype,
                                                    meaning.storage_element_size)) {
    spec.storage = *next;
    return true;
  }
  const Result<std::uint32_t> storage =
      intern(key, call.numel, meaning.storage_dtype, call.position);
  if (!storage) return fail(storage.error());
  spec.storage = *storage;
  return true;
}

Result<const HeaderMeaning*> Reader::meaning_of(const PackedCall& call) {
  for (const HeaderMeaning& known : meanings_)
    if (known.header == call.header) return &known;
  TRY_ASSIGN(const HeaderMeaning meaning, interpret(call));
  meanings_.push_back(meaning);
  return &meanings_.back();
}

Result<HeaderMeaning> Reader::interpret(const PackedCall& call) {
  const PackedHeader& header = *call.header;
  const Value callable = value(header.callable);
  const Rebuild function = rebuild_function(callable.module(), callable.name());
  HeaderMeaning meaning{&header, false, DType::uint8, DType::uint8, 1, 0};
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
  TRY_ASSIGN(meaning.location, location_number(*value(header.location).string()));
  meaning.dtype = *dtype;
  meaning.storage_dtype = storage->dtype;
  meaning.storage_element_size = static_cast<std::uint32_t>(element_size(storage->dtype));
  return meaning;
}

Result<void> Reader::read_storage(const Value& reference, std::uint32_t position, TensorSpec& spec,
                                  std::optional<StorageType>& type) {
  const Value id = reference.persistent_id();
  if (id.kind() != Value::Kind::tuple || id.size() != 5 || id[0].string() != "storage")
    return corrupt(position, "a tensor's storage is " + with_article(reference.kind()) +
                                 ", expected a persistent id of five fields that begins with "
                                 "\"storage\"");
  if (id[1].kind() == Value::Kind::global) type = storage_type(id[1].module(), id[1].name());
  if (!type)
    return failure(
        ErrorCode::unsupported,
        "a tensor lies in a storage of unknown type " +
            (id[1].kind() == Value::Kind::global ? qualified(id[1]) : with_article(id[1].kind())),
        file_offset_ + position);
  const std::optional<std::string_view> key = id[2].string();
  const std::optional<std::int64_t> numel = id[4].integer();
  if (!key || !numel)
    return corrupt(position, "a storage reference has no text key or no number of elements");
  TRY_ASSIGN(spec.location, location_number(id[3].string().value_or(std::string_view{})));
  TRY_ASSIGN(spec.storage, intern(*key, *numel, type->dtype, position));
  return {};
}

Result<void> Reader::read_dims(const Value& sizes, const Value& strides, std::uint32_t position,
                               TensorSpec& spec) {
  // A torch.Size instead of a plain tuple is a call of torch.Size with the tuple.
  const auto plain = [](const Value& dims) {
    const Value type = dims.callable();
    const bool called = is_size(type.module(), type.name()) && dims.arguments().size() == 1;
    return called ? dims.arguments()[0] : dims;
  };
  const Value plain_sizes = plain(sizes);
  if (plain_sizes.kind() != Value::Kind::tuple || strides.kind() != Value::Kind::tuple ||
      plain_sizes.size() != strides.size())
    return corrupt(position, "a tensor's sizes are " + with_article(plain_sizes.kind()) + " of " +
                                 std::to_string(plain_sizes.size()) + ", its strides " +
                                 with_article(strides.kind()) + " of " +
                                 std::to_string(strides.size()));
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
        return corrupt(position, "a tensor's size or stride is " + with_article(dim.kind()) +
                                     ", expected an integer");
      dims.push_back(*dim.integer());
    }
  }
  spec.rank = static_cast<std::uint8_t>(plain_sizes.size());
  spec.dims = dims.data();
  return {};
}

// Arguments behind the strides: requires_grad, hooks, dtype, metadata, as the function has them.
Result<void> Reader::read_flags(const TensorCall& call, TensorSpec& spec) {
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
                   "a tensor is rebuilt with " + bytes::counted(arguments.size(), "argument"));
  if (!arguments[first].boolean())
    return corrupt(call.position,
                   "a tensor's requires_grad is " + with_article(arguments[first].kind()));
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
  return read_metadata(arguments[metadata], call.position, spec);
}

// torch applies what is named here, whatever stands beside the name.
Result<void> Reader::read_metadata(const Value& metadata, std::uint32_t position,
                                   TensorSpec& spec) {
  if (metadata.is_none()) return {};
  if (metadata.kind() != Value::Kind::dict)
    return corrupt(position,
                   "a tensor's metadata is " + with_article(metadata.kind()) + ", expected a dict");
  TRY(spent(metadata.item_count()));
  if (metadata.find("conj")) spec.flags |= TensorSpec::conjugate;
  if (metadata.find("neg")) spec.flags |= TensorSpec::negative;
  return {};
}

Result<std::uint16_t> Reader::location_number(std::string_view location) {
  TRY(spent(location.size() / 64));
  const auto next = static_cast<std::uint16_t>(table_.locations.size());
  const auto [known, is_new] = location_numbers_.try_emplace(location, next);
  if (!is_new) return known->second;
  constexpr std::size_t max_locations = 1024;
  if (table_.locations.size() == max_locations)
    return failure(ErrorCode::limit_exceeded,
                   "the pickle names more than " + std::to_string(max_locations) + " locations");
  table_.locations.push_back(location);
  return next;
}

bool Reader::add(TensorSpec& spec, const Child& child, std::uint32_t path) {
  if (table_.tensors.size() == limits_.tensors)
    return fail(ErrorCode::limit_exceeded,
                "the pickle has more than " + std::to_string(limits_.tensors) + " tensors",
                spec.position);
  spec.path = path;
  // A tensor that is the state of an object has no key of its own: the empty one.
  spec.key = child.has_key ? child.key : value::make_cell(Value::Kind::string, std::uint64_t{0});
  if (path != TensorSpec::is_root) {
    const PathNode& parent = table_.paths[path];
    const Value::Kind kind = value::kind_of(spec.key);
    const bool is_text = kind == Value::Kind::string;
    table_.name_bytes +=
        parent.prefix_bytes + (is_text ? spec.key.count : KeyText(tree_, spec.key).text().size());
    if (parent.depth > 0 || kind == Value::Kind::integer) table_.path_parts += parent.depth + 1;
    if (!is_text && kind != Value::Kind::integer) frames_.back().note_other_item();
  }
  table_.dim_count += std::uint64_t{2} * spec.rank;
  if (spec.dims == last_dims_) shared_dims_ += std::uint64_t{2} * spec.rank;
  last_dims_ = spec.dims;
  if (!check_memory(0, spec.position)) return false;
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
    borrowed_ = kind_as_key(value::kind_of(key));
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
