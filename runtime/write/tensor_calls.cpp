#include "runtime/write/tensor_calls.hpp"

#include <algorithm>

#include "runtime/base/try.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/pickle/write.hpp"
#include "runtime/torch/names.hpp"

namespace weightmap {
namespace {

using torch::Rebuild;

constexpr std::size_t id_parts = 5;

Rebuild function_of(const Value& global) {
  return torch::rebuild_function(global.module(), global.name());
}

bool takes_storage(Rebuild function) noexcept {
  return function == Rebuild::tensor || function == Rebuild::tensor_v2 ||
         function == Rebuild::tensor_v3 || function == Rebuild::qtensor;
}

// The numbers of a tuple, or of a torch.Size of one.
Value as_tuple(const Value& sizes) {
  const Value type = sizes.callable();
  if (torch::is_size(type.module(), type.name()) && sizes.arguments().size() == 1)
    return sizes.arguments()[0];
  return sizes;
}

class Finder {
 public:
  // Is asked by pickle::write() about each object and persistent id.
  void meet(const Value& value) {
    if (value.kind() == Value::Kind::object)
      meet_object(value);
    else if (!expected_ || !expected_->is_same_as(value))
      meet_bare(value);
  }
  TensorCalls take() { return std::move(found_); }

 private:
  void meet_object(const Value& object) {
    const Rebuild function = function_of(object.callable());
    const Value arguments = object.arguments();
    const bool is_nested = function == Rebuild::from_type_v2 && arguments.size() > 2;
    const Rebuild made_by = is_nested ? function_of(arguments[0]) : function;
    const Value given = is_nested ? arguments[2] : arguments;
    if (takes_storage(made_by)) meet_tensor({object, given, is_nested, {}, {}}, made_by);
    if (made_by == Rebuild::device_tensor_from_cpu && given.size() > 0) keep_dtype(given[0]);
    if (made_by == Rebuild::qtensor && given.size() > 4)
      for (const Value& part : given[4].elements()) keep_dtype(part);
  }

  // Whose dtype is also said elsewhere, or has to be this one.
  void keep_dtype(const Value& tensor) {
    const Value arguments = tensor.arguments();
    if (arguments.size() == 0) return;
    if (const auto key = storage_key(arguments[0])) found_.storages[*key].keeps_dtype = true;
  }

  void meet_tensor(TensorCall call, Rebuild function) {
    const Value& given = call.arguments;
    if (given.size() < 4) return;
    const std::optional<std::string_view> key = storage_key(given[0]);
    const std::optional<DType> dtype = key ? dtype_of(given, function) : std::nullopt;
    if (!dtype || !use(found_.storages[*key], given, *dtype)) return;
    expected_ = given[0];
    call.key = *key;
    call.dtype = *dtype;
    found_.calls.push_back(call);
  }

  static std::optional<torch::StorageType> type_of(const Value& persistent_id) {
    const Value type = persistent_id.persistent_id()[1];
    return torch::storage_type(type.module(), type.name());
  }

  static std::optional<DType> dtype_of(const Value& given, Rebuild function) {
    if (function == Rebuild::tensor_v3)
      return given.size() > 6 ? torch::dtype_global(given[6].module(), given[6].name())
                              : std::nullopt;
    const std::optional<torch::StorageType> type = type_of(given[0]);
    return type ? std::optional(type->dtype) : std::nullopt;
  }

  // Notes the bytes between the first and the last element. False for what is no tensor.
  static bool use(StorageUse& storage, const Value& given, DType dtype) {
    const std::optional<std::int64_t> offset = given[1].integer();
    const Value sizes = as_tuple(given[2]);
    const Value strides = as_tuple(given[3]);
    if (!offset || *offset < 0 || sizes.size() != strides.size()) return false;
    std::int64_t reach = 1;  // elements from the first to the last
    bool is_empty = false;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::optional<std::int64_t> size = sizes[i].integer();
      const std::optional<std::int64_t> stride = strides[i].integer();
      std::int64_t step = 0;
      if (!size || !stride || *size < 0 || *stride < 0) return false;
      is_empty = is_empty || *size == 0;
      if (*size > 0 && (!bytes::checked_mul(*size - 1, *stride, &step) ||
                        !bytes::checked_add(reach, step, &reach)))
        return false;
    }
    const std::size_t element = element_size(dtype);
    std::uint64_t first = 0;
    std::uint64_t length = 0;
    std::uint64_t last = 0;
    if (!bytes::checked_mul<std::uint64_t>(static_cast<std::uint64_t>(*offset), element, &first) ||
        !bytes::checked_mul<std::uint64_t>(static_cast<std::uint64_t>(reach), element, &length) ||
        !bytes::checked_add(first, length, &last))
      return false;
    const std::optional<torch::StorageType> type = type_of(given[0]);
    if (type && !type->untyped) storage.dtype = type->dtype;
    storage.unit = std::max({storage.unit, element, element_size(type ? type->dtype : dtype)});
    if (is_empty) return true;
    storage.first = std::min(storage.first, first);
    storage.last = std::max(storage.last, last);
    return true;
  }

  void meet_bare(const Value& persistent_id) {
    if (const auto key = storage_key(persistent_id)) found_.storages[*key].is_bare = true;
  }

  TensorCalls found_;
  std::optional<Value> expected_;  // the storage of the tensor that was met last
};

}  // namespace

std::optional<std::string_view> storage_key(const Value& persistent_id) {
  const Value id = persistent_id.persistent_id();
  if (id.kind() != Value::Kind::tuple || id.size() < id_parts) return std::nullopt;
  return id[2].string();
}

Result<TensorCalls> find_tensor_calls(const Value& root) {
  Finder finder;
  TRY(pickle::write(root, {.replace = [&](const Value& value) {
                      finder.meet(value);
                      return std::optional<Value>();
                    }}));
  return finder.take();
}

}  // namespace weightmap
