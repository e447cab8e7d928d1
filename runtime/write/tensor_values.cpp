#include "runtime/write/tensor_values.hpp"

#include "runtime/torch/names.hpp"

namespace weightmap {
namespace {

std::size_t index_of(DType dtype) noexcept { return static_cast<std::size_t>(dtype); }

}  // namespace

Value TensorValues::global(Once& once, std::string_view module, std::string_view name) {
  if (!once) once = build_.global(module, name);
  return *once;
}

Value TensorValues::integers(std::span<const std::int64_t> values) {
  scratch_.clear();
  for (const std::int64_t value : values) scratch_.push_back(build_.integer(value));
  return build_.tuple(scratch_);
}

Value TensorValues::location(std::string_view name) {
  const auto known = locations_.find(name);
  if (known != locations_.end()) return known->second;
  return locations_.emplace(std::string(name), build_.string(name)).first->second;
}

Value TensorValues::tag() {
  if (!tag_) tag_ = build_.string("storage");
  return *tag_;
}

// numel counts elements of the type, and bytes of a storage that has none.
Value TensorValues::storage(const StorageTexts& texts, std::uint64_t nbytes, DType dtype) {
  const std::string_view name = torch::storage_class(dtype);
  const Value type = name.empty() ? global(untyped_, "torch.storage", "UntypedStorage")
                                  : global(storage_types_[index_of(dtype)], "torch", name);
  const std::uint64_t numel = name.empty() ? nbytes : nbytes / element_size(dtype);
  const std::array id{texts.tag, type, texts.key, texts.location,
                      build_.integer(static_cast<std::int64_t>(numel))};
  return build_.persistent_id(build_.tuple(id));
}

Value TensorValues::tensor(const Value& storage, const TensorSpec& spec) {
  const bool typed = !torch::storage_class(spec.dtype).empty();
  std::array<Value, 8> arguments{
      storage,
      build_.integer(spec.storage_offset),
      integers(spec.sizes),
      integers(spec.strides),
      build_.boolean(spec.requires_grad),
      ordered_dict({}, {}),
  };
  std::size_t count = 6;
  if (!typed)
    arguments[count++] = global(dtypes_[index_of(spec.dtype)], "torch", to_string(spec.dtype));
  if (spec.metadata) arguments[count++] = *spec.metadata;
  const Value rebuild = typed ? global(rebuild_v2_, "torch._utils", "_rebuild_tensor_v2")
                              : global(rebuild_v3_, "torch._utils", "_rebuild_tensor_v3");
  const auto given = std::span(arguments).first(count);
  return build_.object({.callable = rebuild, .arguments = build_.tuple(given)});
}

Value TensorValues::parameter(const Value& tensor, bool requires_grad) {
  const std::array arguments{tensor, build_.boolean(requires_grad), ordered_dict({}, {})};
  return build_.object(
      {.callable = global(rebuild_parameter_, "torch._utils", "_rebuild_parameter"),
       .arguments = build_.tuple(arguments)});
}

Value TensorValues::ordered_dict(std::span<const Value> items, const std::optional<Value>& state) {
  return build_.object({.callable = global(ordered_dict_, "collections", "OrderedDict"),
                        .arguments = build_.tuple({}),
                        .items = items,
                        .state = state});
}

Value TensorValues::size(std::span<const std::int64_t> sizes) {
  const std::array arguments{integers(sizes)};
  return build_.object(
      {.callable = global(size_, "torch", "Size"), .arguments = build_.tuple(arguments)});
}

}  // namespace weightmap
