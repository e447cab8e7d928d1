// PyTorch's names: what the globals of a checkpoint's pickle mean. Nothing outside this folder
// compares a string with a torch name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "weightmap/dtype.hpp"

namespace weightmap::torch {

// Functions that torch.save names in a REDUCE to describe a tensor (torch/_utils.py, _tensor.py).
enum class Rebuild : std::uint8_t {
  none,                    // anything else: stays an opaque node
  tensor,                  // _rebuild_tensor(storage, offset, size, stride)
  tensor_v2,               // ..., requires_grad, hooks[, metadata]; dtype from the storage
  tensor_v3,               // ..., requires_grad, hooks, dtype[, metadata]; untyped storage
  qtensor,                 // _rebuild_qtensor(..., qparams, requires_grad, hooks)
  parameter,               // _rebuild_parameter(tensor, requires_grad, hooks)
  parameter_with_state,    // ..., state
  from_type_v2,            // _rebuild_from_type_v2(function, type, arguments, state)
  device_tensor_from_cpu,  // _rebuild_device_tensor_from_cpu_tensor(tensor, dtype, device, ...)
};
Rebuild rebuild_function(std::string_view module, std::string_view name) noexcept;

// What a storage class says about its elements. UntypedStorage counts bytes.
struct StorageType {
  DType dtype;
  bool untyped;
};
// "torch FloatStorage", "torch.cuda HalfStorage", "torch.storage UntypedStorage".
std::optional<StorageType> storage_type(std::string_view module, std::string_view name) noexcept;

// "torch bfloat16": a dtype pickled as a global.
std::optional<DType> dtype_global(std::string_view module, std::string_view name) noexcept;

// collections.OrderedDict, the type of a tensor's (always empty) backward hooks.
bool is_ordered_dict(std::string_view module, std::string_view name) noexcept;

// Names that no checkpoint needs and that programs have been smuggled in with. Since nothing is
// ever called this is not what keeps us safe; it is a clear word about what the file is.
bool is_dangerous(std::string_view module, std::string_view name) noexcept;

}  // namespace weightmap::torch
