#include "runtime/services/write/tensor_values.hpp"

#include "runtime/formats/torch/names.hpp"

namespace weightmap {
namespace {

using torch::storage_class;

std::size_t index_of(DType dtype) noexcept { return static_cast<std::size_t>(dtype); }

// True if a storage class states the element type.
bool is_typed(DType dtype) noexcept { return !storage_class(dtype).empty(); }

// Returns the count of elements of a typed storage, or the bytes of an untyped one.
std::int64_t numel(std::uint64_t nbytes, DType dtype) noexcept {
  return static_cast<std::int64_t>(is_typed(dtype) ? nbytes / element_size(dtype) : nbytes);
}

bool are_strings(const StorageTexts& texts) noexcept {
  constexpr Value::Kind string = Value::Kind::string;
  return texts.tag.kind() == string && texts.key.kind() == string &&
         texts.location.kind() == string;
}

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

Value TensorValues::storage_type(DType dtype) {
  return is_typed(dtype) ? global(storage_types_[index_of(dtype)], "torch", storage_class(dtype))
                         : global(untyped_, "torch.storage", "UntypedStorage");
}

Value TensorValues::rebuild(bool has_type) {
  return has_type ? global(rebuild_v2_, "torch._utils", "_rebuild_tensor_v2")
                  : global(rebuild_v3_, "torch._utils", "_rebuild_tensor_v3");
}

Value TensorValues::dtype_name(DType dtype) {
  return global(dtypes_[index_of(dtype)], "torch", to_string(dtype));
}

Value TensorValues::storage(const StorageTexts& texts, std::uint64_t nbytes, DType dtype) {
  const std::array id{texts.tag, storage_type(dtype), texts.key, texts.location,
                      build_.integer(numel(nbytes, dtype))};
  return build_.persistent_id(build_.tuple(id));
}

Value TensorValues::tensor(const StorageTexts& texts, std::uint64_t nbytes,
                           const TensorSpec& spec) {
  if (!spec.metadata && are_strings(texts)) {
    const value::PackedHeader* const common = header(texts, spec.dtype);
    if (common == nullptr) return {};
    const std::optional<value::Cell> packed =
        cells_.packed({common, texts.key.cell(), numel(nbytes, spec.dtype), spec.storage_offset,
                       spec.sizes, spec.strides, spec.requires_grad});
    if (packed) return {&cells_.tree(), *packed};
  }
  return tensor_of_pieces(storage(texts, nbytes, spec.dtype), spec);
}

const value::PackedHeader* TensorValues::header(const StorageTexts& texts, DType dtype) {
  const value::Cell of = texts.tag.cell();
  const value::Cell at = texts.location.cell();
  const HeaderKey key{of.payload, of.count, at.payload, at.count, index_of(dtype)};
  if (last_header_ != nullptr && key == last_key_) return last_header_;
  const value::PackedHeader*& known = headers_[key];
  if (known == nullptr) {
    const Value hooks = global(ordered_dict_, "collections", "OrderedDict");
    const Value extra = is_typed(dtype) ? Value() : dtype_name(dtype);
    known = cells_.packed_header({.ids = {},
                                  .callable = rebuild(is_typed(dtype)).cell(),
                                  .tag = of,
                                  .type = storage_type(dtype).cell(),
                                  .location = at,
                                  .hooks_callable = hooks.cell(),
                                  .extra = extra.cell()});
  }
  last_key_ = key;
  return last_header_ = known;
}

Value TensorValues::tensor_of_pieces(const Value& storage, const TensorSpec& spec) {
  const bool has_type = is_typed(spec.dtype);
  std::array<Value, 8> arguments{
      storage,
      build_.integer(spec.storage_offset),
      integers(spec.sizes),
      integers(spec.strides),
      build_.boolean(spec.requires_grad),
      ordered_dict({}, {}),
  };
  std::size_t count = 6;
  if (!has_type) arguments[count++] = dtype_name(spec.dtype);
  if (spec.metadata) arguments[count++] = *spec.metadata;
  const auto given = std::span(arguments).first(count);
  return build_.object({.callable = rebuild(has_type), .arguments = build_.tuple(given)});
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
