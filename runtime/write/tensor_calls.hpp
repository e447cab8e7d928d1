// The calls in a pickle that make tensors over storages, and what they use of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weightmap/dtype.hpp"
#include "weightmap/result.hpp"
#include "weightmap/value.hpp"

namespace weightmap {

struct StorageUse {
  // The bytes that tensors use lie from the first up to the last, which is none of them.
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t last = 0;
  // Of the largest element: where it may be cut, its bytes still are whole elements.
  std::size_t unit = 1;
  std::optional<DType> dtype = {};  // by its class; nullopt if that is UntypedStorage
  bool is_bare = false;             // something else refers to it, and so to all of it
  bool keeps_dtype = false;  // a tensor is part of another one, whose function wants this type
};

struct TensorCall {
  Value object;
  // Storage, offset, sizes, strides and more: the object's own, or those of the function that its
  // third argument is for.
  Value arguments;
  bool is_nested;
  std::string_view key;  // of the storage
  DType dtype;
};

struct TensorCalls {
  std::vector<TensorCall> calls;  // each once, in the order in which a pickle has them
  std::unordered_map<std::string_view, StorageUse> storages;  // by key
};

// The key in ("storage", type, key, location, numel), the id of a storage; nullopt for another id.
std::optional<std::string_view> storage_key(const Value& persistent_id);

// Of everything that a pickle of `root` would hold. Borrows from the tree. Fails as pickle::write()
// does.
Result<TensorCalls> find_tensor_calls(const Value& root);

}  // namespace weightmap
