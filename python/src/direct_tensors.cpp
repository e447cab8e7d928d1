#include "python/src/direct_tensors.hpp"

#include <string>

#include "python/src/errors.hpp"
#include "python/src/text.hpp"
#include "python/src/torch_door.hpp"
#include "weightmap/backing.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

using Kind = Value::Kind;

// Five fields: "storage", type, key, location, number of elements.
bool is_storage_id(const Value& id) {
  return id.kind() == Kind::tuple && id.size() == 5 && id[0].string() == "storage" &&
         id[1].kind() == Kind::global && id[2].string() && id[4].integer();
}

// Returns true if nothing is added to the result of the call.
bool is_plain_call(const Value& call) {
  return !call.is_new_object() && !call.state() && call.size() == 0 && call.item_count() == 0 &&
         call.callable().kind() == Kind::global && call.arguments().kind() == Kind::tuple;
}

// Recognises the hooks that torch.save writes for torch before 0.4.
bool are_empty_hooks(const Value& hooks) {
  return hooks.kind() == Kind::object && is_plain_call(hooks) && hooks.arguments().size() == 0 &&
         hooks.callable().module() == "collections" && hooks.callable().name() == "OrderedDict";
}

// Recognises the arguments that rebuild a tensor of the CPU at the beginning of its storage:
// storage, offset, sizes, strides, requires_grad, hooks.
bool are_usual(const Value& arguments) {
  if (arguments.size() <= DirectTensors::hooks_argument) return false;
  const Value id = arguments[0].persistent_id();
  const Value hooks = arguments[DirectTensors::hooks_argument];
  return is_storage_id(id) && id[3].string() == "cpu" && arguments[1].integer() == 0 &&
         arguments[4].boolean() && (hooks.is_none() || are_empty_hooks(hooks));
}

}  // namespace

DirectTensors::DirectTensors(const Owner& owner, nb::handle settings, Find find)
    : owner_(owner),
      find_(std::move(find)),
      rebuild_(settings.attr("rebuild")),
      rebuild_untyped_(settings.attr("rebuild_untyped")),
      untyped_storage_(settings.attr("untyped_storage")),
      adopt_(settings.attr("adopt")),
      storage_types_(read_names(settings.attr("storage_types"))),
      dtypes_(read_names(settings.attr("dtypes"))),
      users_(Backing(owner->checkpoint()).storage_count()) {}

bool DirectTensors::is_parameter(const Value& call) {
  if (!is_plain_call(call) || call.callable().name() != "_rebuild_parameter" ||
      call.callable().module() != "torch._utils")
    return false;
  const Value arguments = call.arguments();
  return arguments.size() == 3 && arguments[0].kind() == Kind::object &&
         arguments[1].boolean().has_value() && are_empty_hooks(arguments[2]);
}

DirectTensors::Names DirectTensors::read_names(nb::handle dict) {
  Names names;
  for (const auto& [object, name] : nb::borrow<nb::dict>(dict))
    if (const std::optional<DType> dtype = dtype_from_string(to_utf8(name)))
      names.emplace_back(nb::borrow(object), *dtype);
  return names;
}

nb::object DirectTensors::make(const Value& call) {
  if (!is_plain_call(call) || !are_usual(call.arguments())) return {};
  const Value arguments = call.arguments();
  const Value id = arguments[0].persistent_id();
  nb::object type;
  const std::optional<DType> dtype = dtype_of(call, id, type);
  Dims dims;
  if (!dtype || !read_dims(arguments[2], arguments[3], dims)) return {};
  const std::optional<std::size_t> index = storage_index(*id[2].string());
  if (!index || users_[*index].tensor.is_valid()) return {};
  const NamedStorage storage = Backing(owner_->checkpoint()).storage(*index);
  const std::uint64_t reach = reach_of(dims.shape(), dims.strides());
  const std::size_t size = element_size(*dtype);
  const std::uint64_t unit = type.is(untyped_storage_) ? 1 : size;  // of what the id counts
  if (reach == 0 || reach > storage.nbytes / size ||
      reach * size / unit != static_cast<std::uint64_t>(*id[4].integer()))
    return {};
  const std::uint64_t position =
      owner_->checkpoint().source(storage.source).mapping_offset + storage.payload_offset;
  const std::span<std::byte> memory = value_or_raise(owner_->lend(storage.nbytes));
  nb::object tensor =
      through_torch_door({owner_, memory.data() + position, *dtype, dims.shape(), dims.strides()});
  if (!tensor.is_valid()) return {};
  if (*arguments[4].boolean()) nb::setattr(tensor, "requires_grad", nb::bool_(true));
  users_[*index] = {tensor, type};
  return tensor;
}

// Returns the dtype that torch's rebuild function gives this storage, if the call is one of such a
// function.
std::optional<DType> DirectTensors::dtype_of(const Value& call, const Value& id,
                                             nb::object& type) const {
  const auto lookup = [](const Names& names, const nb::object& object) -> std::optional<DType> {
    for (const auto& [known, dtype] : names)
      if (object.is(known)) return dtype;
    return std::nullopt;
  };
  const nb::object function = find_(call.callable());
  const std::size_t arguments = call.arguments().size();
  if (function.is(rebuild_) && arguments == hooks_argument + 1) {
    type = find_(id[1]);
    return lookup(storage_types_, type);
  }
  const Value dtype =
      arguments == hooks_argument + 2 ? call.arguments()[hooks_argument + 1] : Value{};
  if (!function.is(rebuild_untyped_) || dtype.kind() != Kind::global) return std::nullopt;
  type = find_(id[1]);
  // This function makes the tensor require a gradient before it has elements.
  if (!type.is(untyped_storage_) || *call.arguments()[4].boolean()) return std::nullopt;
  return lookup(dtypes_, find_(dtype));
}

bool DirectTensors::read_dims(const Value& sizes, const Value& strides, Dims& dims) {
  dims.rank = sizes.size();
  if (sizes.kind() != Kind::tuple || strides.kind() != Kind::tuple || dims.rank != strides.size() ||
      dims.rank > TensorView::max_slice_rank)
    return false;
  std::size_t at = 0;
  for (const Value& from : {sizes, strides}) {
    for (const Value& dim : from.elements()) {
      if (!dim.integer()) return false;
      dims.values[at++] = *dim.integer();
    }
  }
  return true;
}

// Storages are mostly asked for in their order, and then found without a table of their keys.
std::optional<std::size_t> DirectTensors::storage_index(std::string_view key) {
  const bool is_next = next_storage_ < users_.size() &&
                       Backing(owner_->checkpoint()).storage(next_storage_).key == key;
  const std::optional<std::size_t> index = is_next ? next_storage_ : owner_->find_storage(key);
  if (index) next_storage_ = *index + 1;
  return index;
}

void DirectTensors::before_storage(const Value& id) {
  const std::optional<std::string_view> key = id.size() == 5 ? id[2].string() : std::nullopt;
  const std::optional<std::size_t> index = key ? storage_index(*key) : std::nullopt;
  if (!index) return;
  User& user = users_[*index];
  if (user.tensor.is_valid() && !user.tensor.is_none())
    adopt_(to_str(*key), user.type, user.tensor);
  user = {nb::none(), {}};
}

}  // namespace weightmap::python
