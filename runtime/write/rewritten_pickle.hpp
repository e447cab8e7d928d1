// The pickle of a checkpoint whose storages are cut or converted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/write/tensor_calls.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/result.hpp"
#include "weightmap/value.hpp"

namespace weightmap {

struct StorageChange {
  // The bytes that stay, as they were.
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::optional<DType> dtype = {};  // what the elements become
};
using StorageChanges = std::unordered_map<std::string_view, StorageChange>;  // by key

// Protocol 2. `calls` are those of `root`. Fails with unsupported if something that is not one of
// them refers to a storage that changes, else as pickle::write() does.
Result<std::vector<std::byte>> rewrite_pickle(const Value& root, const TensorCalls& calls,
                                              const StorageChanges& changes);

}  // namespace weightmap
