#include "runtime/formats/torch/tensor_decoder.hpp"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/torch/script.hpp"

namespace weightmap::torch {

using pickle::with_article;
using value::Cell;
using value::PackedCall;
using value::PackedHeader;
using value::Tree;

namespace {

// torch accepts these as a bool.
bool is_flag(const Value& value) noexcept {
  return value.is_none() || value.boolean() || value.integer() || value.real();
}

bool is_complex(DType dtype) noexcept {
  return dtype == DType::complex32 || dtype == DType::complex64 || dtype == DType::complex128;
}

bool is_torch_class(std::string_view module) noexcept {
  return module == "torch" || module.starts_with("torch.");
}

}  // namespace

Result<bool> TensorDecoder::unwrap(const Value& object, TensorCall& call) {
  TRY_ASSIGN(const bool is_dense, unwrap_all(object, call));
  // Only of a plain tensor decode() can tell whether its data is repeated.
  if (call.data && (!is_dense || call.function == Rebuild::qtensor))
    return sets_property("data", call.position);
  return is_dense;
}

Result<bool> TensorDecoder::unwrap_all(const Value& object, TensorCall& call) {
  Value current = object;
  // Wrappers are at most a few deep in real files; the depth of the tree bounds hostile ones.
  while (true) {
    TRY(budget_.spent(1));
    call.packed = value::packed_call(current.cell());
    if (call.packed != nullptr) return true;
    const auto* node = value::target_of<const value::Object>(current.cell());
    const Value callable = current.callable();
    call.position = node->position;
    if (is_legacy_tensor(current, call)) return true;
    call.function = current.is_new_object() ? Rebuild::none : rebuild_function(callable);
    if (call.function == Rebuild::none) return false;
    call.arguments = current.arguments();
    if (current.size() + current.item_count() != 0 || current.state())
      return failure(
          ErrorCode::unsafe_pickle,
          "the pickle changes a tensor made by " + qualified_name(callable) + " after making it",
          pickle_offset_ + node->position);
    TRY_ASSIGN(const bool wrapped, unwrap_once(call));
    if (!wrapped) return call.function != Rebuild::none && !is_composed(call.function);
    current = call.arguments[0];
    if (current.kind() != Value::Kind::object || current.cell().part > value::packed_object)
      return corrupt(call.position, "a wrapper such as _rebuild_parameter holds " +
                                        with_article(current.kind()) + " instead of a tensor");
  }
}

// Converts the object to the equivalent call of _rebuild_tensor().
bool TensorDecoder::is_legacy_tensor(const Value& object, TensorCall& call) {
  const auto type = legacy_tensor_class(object.callable());
  const std::optional<Value> state = object.state();
  if (!type || !state || state->kind() != Value::Kind::tuple || state->size() != 4 ||
      object.size() + object.item_count() + object.arguments().size() != 0)
    return false;
  call.function = Rebuild::tensor;
  call.arguments = *state;
  call.converted_to = type->dtype;
  return true;
}

// Returns true if arguments[0] is the tensor that this call wraps. Replaces from_type_v2 by its
// call.
Result<bool> TensorDecoder::unwrap_once(TensorCall& call) {
  const std::size_t count = call.arguments.size();
  switch (call.function) {
    case Rebuild::from_type_v2: {
      if (count != 4 || call.arguments[0].kind() != Value::Kind::global ||
          call.arguments[2].kind() != Value::Kind::tuple)
        return corrupt(call.position, "_rebuild_from_type_v2 has unexpected arguments");
      // A third-party class may interpret its state in any way; torch's classes set attributes.
      if (is_torch_class(call.arguments[1].module()))
        TRY(attach_state(call, 3));
      else
        call.attachments.push_back({3, call.arguments[3].cell()});
      call.function = rebuild_function(call.arguments[0]);
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

Result<std::uint32_t> TensorDecoder::intern(std::string_view key, std::int64_t numel, DType dtype,
                                            std::uint32_t position) {
  TRY(budget_.spent(key.size() / 64));
  if (key.find('/') != std::string_view::npos)
    return corrupt(position,
                   "a storage has the key " + bytes::quote(key) + ", expected one without a slash");
  if (in_constants_) {
    table_.owned_keys.push_back(std::string(constants_folder).append(key));
    table_.decoded_bytes += key.size() + 2 * sizeof(std::string);
    key = table_.owned_keys.back();
  }
  return table_.storages.intern(key, numel, dtype, pickle_offset_ + position);
}

Result<void> TensorDecoder::attach_state(TensorCall& call, std::size_t argument) {
  const Value state = call.arguments[argument];
  call.attachments.push_back({static_cast<std::int64_t>(argument), state.cell()});
  if (state.kind() != Value::Kind::tuple || state.size() != 2) return check_state(state, call);
  TRY(check_state(state[0], call));
  return check_state(state[1], call);
}

// torch sets each item as an attribute of the tensor.
Result<void> TensorDecoder::check_state(const Value& state, TensorCall& call) {
  TRY(budget_.spent(state.item_count()));
  const Value arguments = state.arguments();
  if (is_ordered_dict(state.callable()) && arguments.size() != 0)
    return failure(
        ErrorCode::unsafe_pickle,
        "a tensor's attributes are set from an OrderedDict that is called with what is no dict "
        "and no pairs",
        pickle_offset_ + call.position);
  for (const auto& [key, item] : state.items())
    if (is_tensor_property(key.string().value_or("")) && !is_repeated(key, item, call))
      return sets_property(*key.string(), call.position);
  return {};
}

// True if a parameter's state only repeats what the parameter is, as that of bitsandbytes does.
bool TensorDecoder::is_repeated(const Value& property, const Value& item, TensorCall& call) const {
  if (call.function != Rebuild::parameter_with_state) return false;
  if (property.string() == "requires_grad")
    return item.boolean() && item.boolean() == call.arguments[1].boolean();
  const bool is_object =
      item.kind() == Value::Kind::object && item.cell().part <= value::packed_object;
  if (property.string() != "data" || !is_object || call.data) return false;
  call.data = item.cell();
  return true;
}

tl::unexpected<Error> TensorDecoder::sets_property(std::string_view name,
                                                   std::uint32_t position) const {
  return failure(ErrorCode::unsafe_pickle,
                 "the pickle sets " + bytes::quote(name) + " of a tensor after making it",
                 pickle_offset_ + position);
}

Result<void> TensorDecoder::check_data(const TensorCall& call, const TensorSpec& spec) {
  TensorCall data;
  TRY_ASSIGN(const bool is_tensor, unwrap(value(*call.data), data));
  if (!is_tensor || data.data) return sets_property("data", call.position);
  TRY_ASSIGN(const TensorSpec again, decode_call(data));
  const auto marks = [](const TensorSpec& of) {
    return std::tuple(of.storage, of.storage_offset, of.dtype, of.rank,
                      of.flags & (TensorSpec::conjugate | TensorSpec::negative));
  };
  if (marks(spec) == marks(again) && std::equal(spec.dims, spec.dims + 2 * spec.rank, again.dims))
    return {};
  return sets_property("data", call.position);
}

Result<TensorSpec> TensorDecoder::decode(const TensorCall& call) {
  TRY_ASSIGN(TensorSpec spec, decode_call(call));
  if (call.data) TRY(check_data(call, spec));
  return spec;
}

Result<TensorSpec> TensorDecoder::decode_call(const TensorCall& call) {
  const auto wrapped = [&](TensorSpec& spec) -> Result<TensorSpec> {
    if (call.converted_to && *call.converted_to != spec.dtype)
      return failure(ErrorCode::unsupported,
                     "a tensor is converted from " + std::string(to_string(spec.dtype)) + " to " +
                         std::string(to_string(*call.converted_to)) + " when it is loaded",
                     pickle_offset_ + call.position);
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
    if (!describe_packed(*call.packed, *meaning, spec) ||
        !intern_packed(*call.packed, *meaning, spec.storage))
      return tl::unexpected<Error>(error_);
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
  LegacyViews::View view{};
  TRY(read_storage(call.arguments[0], call.position, spec, type, view));
  const std::optional<std::int64_t> offset = call.arguments[1].integer();
  if (!offset || *offset < 0)
    return corrupt(call.position,
                   "a tensor's storage offset is " +
                       (offset ? std::to_string(*offset) : with_article(call.arguments[1].kind())) +
                       ", expected an integer from 0 on");
  spec.storage_offset = *offset;
  spec.dtype = type->dtype;
  TRY(read_dims(call.arguments[2], call.arguments[3], call.position, spec));
  if (views_ != nullptr) TRY(LegacyViews::place(view, spec, pickle_offset_ + call.position));
  TRY(read_flags(call, spec));
  return wrapped(spec);
}

bool TensorDecoder::refuse_dims(const PackedCall& call) {
  error_ = {ErrorCode::corrupt,
            "a tensor has " + bytes::counted(call.shape->size_count, "size") + ", " +
                bytes::counted(call.shape->stride_count, "stride") + " and storage offset " +
                std::to_string(call.shape->storage_offset),
            pickle_offset_ + call.position,
            {}};
  return false;
}

bool TensorDecoder::intern_packed(const PackedCall& call, const HeaderMeaning& meaning,
                                  std::uint32_t& number) {
  const std::string_view key = tree_.text(call.key_position, call.key_length);
  Result<std::uint32_t> storage =
      intern(key, call.shape->numel, meaning.storage_dtype, call.position);
  if (!storage) {
    error_ = std::move(storage.error());
    return false;
  }
  number = *storage;
  return true;
}

Result<const HeaderMeaning*> TensorDecoder::meaning_of(const PackedCall& call) {
  for (const HeaderMeaning& known : meanings_)
    if (known.header == call.shape->header) return &known;
  TRY_ASSIGN(const HeaderMeaning meaning, interpret(call));
  meanings_.push_back(meaning);
  return &meanings_.back();
}

Result<HeaderMeaning> TensorDecoder::interpret(const PackedCall& call) {
  const PackedHeader& header = *call.shape->header;
  const Rebuild function = rebuild_function(value(header.callable));
  HeaderMeaning meaning{&header, false, DType::uint8, DType::uint8, 1, 0};
  meaning.is_tensor = function == Rebuild::tensor_v2 || function == Rebuild::tensor_v3;
  if (!meaning.is_tensor) return meaning;
  const Value type = value(header.type);
  const std::optional<StorageType> storage = storage_type(type.module(), type.name());
  if (value(header.tag).string() != "storage" || !storage)
    return failure(ErrorCode::unsupported,
                   "a tensor lies in a storage of unknown type " + qualified_name(type),
                   pickle_offset_ + call.position);
  const Value hooks = value(header.hooks_callable);
  if (!is_ordered_dict(hooks))
    return failure(ErrorCode::unsafe_pickle,
                   "a tensor's backward hooks name " + qualified_name(hooks),
                   pickle_offset_ + call.position);
  const bool has_extra = header.ids.extra != PackedHeader::no_id;
  if (has_extra != (function == Rebuild::tensor_v3))
    return corrupt(call.position, "a tensor is rebuilt with an unknown dtype");
  meaning.dtype = storage->dtype;
  if (has_extra) {
    TRY_ASSIGN(meaning.dtype, dtype_argument(value(header.extra), call.position));
  }
  TRY_ASSIGN(meaning.location, location_number(*value(header.location).string()));
  meaning.storage_dtype = storage->dtype;
  meaning.storage_element_size = static_cast<std::uint8_t>(element_size(storage->dtype));
  return meaning;
}

Result<void> TensorDecoder::read_storage(const Value& reference, std::uint32_t position,
                                         TensorSpec& spec, std::optional<StorageType>& type,
                                         LegacyViews::View& view) {
  const Value id = reference.persistent_id();
  if (!is_storage_id(id))
    return corrupt(position, "a tensor's storage is " + with_article(reference.kind()) +
                                 ", expected a persistent id of " +
                                 (views_ == nullptr ? "five" : "six") +
                                 " fields that begins with \"storage\"");
  if (id[1].kind() == Value::Kind::global) type = storage_type(id[1].module(), id[1].name());
  if (!type)
    return failure(ErrorCode::unsupported,
                   "a tensor lies in a storage of unknown type " +
                       (id[1].kind() == Value::Kind::global ? qualified_name(id[1])
                                                            : with_article(id[1].kind())),
                   pickle_offset_ + position);
  const std::optional<std::string_view> key = id[2].string();
  const std::optional<std::int64_t> numel = id[4].integer();
  if (!key || !numel)
    return corrupt(position, "a storage reference has no text key or no number of elements");
  TRY_ASSIGN(spec.location, location_number(id[3].string().value_or(std::string_view{})));
  TRY_ASSIGN(spec.storage, intern(*key, *numel, type->dtype, position));
  if (views_ == nullptr) return {};
  TRY_ASSIGN(view, views_->view(id[5], spec.storage, *numel, pickle_offset_ + position));
  return {};
}

Result<void> TensorDecoder::read_dims(const Value& sizes, const Value& strides,
                                      std::uint32_t position, TensorSpec& spec) {
  // A torch.Size instead of a plain tuple is a call of torch.Size with the tuple.
  const auto plain = [](const Value& dims) {
    const bool called = is_size(dims.callable()) && dims.arguments().size() == 1;
    return called ? dims.arguments()[0] : dims;
  };
  const Value plain_sizes = plain(sizes);
  if (plain_sizes.kind() != Value::Kind::tuple || strides.kind() != Value::Kind::tuple ||
      plain_sizes.size() != strides.size())
    return corrupt(position, "a tensor's sizes are " + with_article(plain_sizes.kind()) + " of " +
                                 std::to_string(plain_sizes.size()) + ", its strides " +
                                 with_article(strides.kind()) + " of " +
                                 std::to_string(strides.size()));
  if (plain_sizes.size() > std::min<std::uint32_t>(rank_limit_, 255))
    return failure(ErrorCode::limit_exceeded,
                   "a tensor has " + std::to_string(plain_sizes.size()) +
                       " dimensions, the limit is " + std::to_string(rank_limit_),
                   pickle_offset_ + position);
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

Result<DType> TensorDecoder::dtype_argument(const Value& dtype, std::uint32_t position) const {
  if (const std::optional<DType> known = dtype_global(dtype.module(), dtype.name())) return *known;
  if (dtype.kind() != Value::Kind::global || dtype.module() != "torch")
    return corrupt(position, "a tensor is rebuilt with an unknown dtype");
  return failure(ErrorCode::unsupported, "a tensor has the unknown dtype " + qualified_name(dtype),
                 pickle_offset_ + position);
}

// Reads the arguments behind the strides: requires_grad, hooks, dtype, metadata, as far as the
// function has them.
Result<void> TensorDecoder::read_flags(const TensorCall& call, TensorSpec& spec) {
  if (call.function == Rebuild::tensor) return {};
  const Value& arguments = call.arguments;
  const std::size_t first = call.function == Rebuild::qtensor ? 5 : 4;
  std::size_t metadata = first + 2;
  if (call.function == Rebuild::tensor_v3) {
    ++metadata;
    const Value dtype = arguments.size() > 6 ? arguments[6] : value({});
    TRY_ASSIGN(spec.dtype, dtype_argument(dtype, call.position));
  }
  if (arguments.size() < first + 2 || arguments.size() > metadata + 1)
    return corrupt(call.position,
                   "a tensor is rebuilt with " + bytes::counted(arguments.size(), "argument"));
  if (!arguments[first].boolean())
    return corrupt(call.position,
                   "a tensor's requires_grad is " + with_article(arguments[first].kind()));
  if (*arguments[first].boolean()) spec.flags |= TensorSpec::requires_grad;
  const Value hooks = arguments[first + 1];
  const bool empty =
      hooks.item_count() == 0 && hooks.size() == 0 && !hooks.state() &&
      hooks.arguments().size() == 0 &&
      (hooks.is_none() || hooks.kind() == Value::Kind::dict || is_ordered_dict(hooks.callable()));
  if (!empty)
    return failure(ErrorCode::unsafe_pickle, "a tensor has backward hooks, which are code",
                   pickle_offset_ + call.position);
  if (arguments.size() <= metadata) return {};
  return read_metadata(arguments[metadata], call.position, spec);
}

// torch applies what this argument names and ignores anything beside the name.
Result<void> TensorDecoder::read_metadata(const Value& metadata, std::uint32_t position,
                                          TensorSpec& spec) {
  if (metadata.is_none()) return {};
  if (metadata.kind() != Value::Kind::dict)
    return corrupt(position,
                   "a tensor's metadata is " + with_article(metadata.kind()) + ", expected a dict");
  TRY(budget_.spent(metadata.item_count()));
  for (const auto& [key, is_set] : metadata.items()) {
    if (!key.string())
      return corrupt(position, "a tensor's metadata has " + with_article(key.kind()) +
                                   " for a key, expected text");
    if (!is_flag(is_set))
      return corrupt(position, "a tensor's metadata has " + with_article(is_set.kind()) + " for " +
                                   bytes::quote(*key.string()) + ", expected a bool");
  }
  if (metadata.find("conj") && !is_complex(spec.dtype))
    return corrupt(position, "a tensor of " + std::string(to_string(spec.dtype)) +
                                 " is said to be a lazy conjugate");
  if (metadata.find("conj")) spec.flags |= TensorSpec::conjugate;
  if (metadata.find("neg")) spec.flags |= TensorSpec::negative;
  return {};
}

Result<std::uint16_t> TensorDecoder::location_number(std::string_view location) {
  TRY(budget_.spent(location.size() / 64));
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

}  // namespace weightmap::torch
