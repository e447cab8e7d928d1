// PyTorch's names: the meaning of the globals in a checkpoint's pickle. Nothing outside this folder
// compares a string with a torch name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weightmap/dtype.hpp"
#include "weightmap/value.hpp"

namespace weightmap::torch {

// Functions that torch.save names in a REDUCE to describe a tensor (torch/_utils.py, _tensor.py).
enum class Rebuild : std::uint8_t {
  none,                    // anything else, which stays an opaque node
  tensor,                  // _rebuild_tensor(storage, offset, size, stride)
  tensor_v2,               // ..., requires_grad, hooks[, metadata]; dtype from the storage
  tensor_v3,               // ..., requires_grad, hooks, dtype[, metadata]; untyped storage
  qtensor,                 // _rebuild_qtensor(..., qparams, requires_grad, hooks)
  parameter,               // _rebuild_parameter(tensor, requires_grad, hooks)
  parameter_with_state,    // ..., state
  from_type_v2,            // _rebuild_from_type_v2(function, type, arguments, state)
  device_tensor_from_cpu,  // _rebuild_device_tensor_from_cpu_tensor(tensor, dtype, device, ...)
  // The result is more than a dense tensor; see composed.hpp.
  sparse,                    // _rebuild_sparse_tensor(layout, parts)
  nested,                    // _rebuild_nested_tensor(buffer, sizes, strides, storage_offsets)
  jagged,                    // _rebuild_njt({"values": ..., "offsets": ..., ...})
  meta,                      // _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad)
  wrapper_subclass,          // _rebuild_wrapper_subclass(class, dtype, size, stride, ...)
  device_tensor_from_array,  // _rebuild_device_tensor_from_numpy(array, dtype, device, ...)
};
Rebuild rebuild_function(const Value& global) noexcept;

inline bool is_composed(Rebuild function) noexcept { return function >= Rebuild::sparse; }

// How integers of a quantized tensor map to numbers, in schemes that torch can rebuild.
enum class QuantizationScheme : std::uint8_t { none, per_tensor, per_channel };
QuantizationScheme quantization_scheme(const Value& global) noexcept;

// A class of tensors such as "torch FloatTensor", "torch.cuda LongTensor" or "torch Tensor". Before
// torch 0.4 its pickles have (storage, offset, size, stride) as their state. `dtype` is empty where
// the storage decides it.
struct LegacyTensorClass {
  std::optional<DType> dtype;
};
std::optional<LegacyTensorClass> legacy_tensor_class(const Value& global) noexcept;

inline bool is_named(const Value& global, std::string_view module, std::string_view name) noexcept {
  return global.module() == module && global.name() == name;
}

// The element type that a storage class states. UntypedStorage counts bytes.
struct StorageType {
  DType dtype;
  bool untyped;
};
// Recognises "torch FloatStorage", "torch.cuda HalfStorage", "torch.storage UntypedStorage".
std::optional<StorageType> storage_type(std::string_view module, std::string_view name) noexcept;

// Returns the class of the module torch that torch.save writes for storages of this type, such as
// "FloatStorage". Empty for types without one, which are written as torch.storage UntypedStorage.
std::string_view storage_class(DType dtype) noexcept;

// Recognises a dtype that is pickled as a global, such as "torch bfloat16".
std::optional<DType> dtype_global(std::string_view module, std::string_view name) noexcept;

// True for a function that torch.jit.save wraps around a list or dict to state its type
// (torch/jit/_pickle.py). Its first argument is the list or dict.
bool is_type_tag(const Value& global) noexcept;

// True for the class of shapes.
inline bool is_size(const Value& global) noexcept { return is_named(global, "torch", "Size"); }

// True for a class whose items are a dict's, with at most one of each key.
bool is_dict_class(const Value& global) noexcept;

// True for the type of a tensor's (always empty) backward hooks.
inline bool is_ordered_dict(const Value& global) noexcept {
  return is_named(global, "collections", "OrderedDict");
}

struct GlobalName {
  std::string_view module;
  std::string_view name;
};
// Translates a Python 2 global as torch's weights-only loader does; returns any other unchanged.
GlobalName in_python_3(std::string_view module, std::string_view name) noexcept;

// True for properties of torch.Tensor. A state that sets one of them replaces the data of the
// tensor or a fact about it.
bool is_tensor_property(std::string_view attribute) noexcept;

// "torch.nn.Parameter", as the file has it; and escaped, for messages.
std::string full_name(std::string_view module, std::string_view name);
[[gnu::cold]] std::string qualified_name(std::string_view module, std::string_view name);
[[gnu::cold]] inline std::string qualified_name(const Value& global) {
  return qualified_name(global.module(), global.name());
}

}  // namespace weightmap::torch
