// Finds the tensors of two checkpoints that were added, removed, renamed or changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/values/numpy_value.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/inspect.hpp"

namespace weightmap::cli {

enum class Change : std::uint8_t { none, changed, renamed, removed, added, not_compared };
inline constexpr std::size_t change_count = static_cast<std::size_t>(Change::not_compared) + 1;

std::string_view to_string(Change change) noexcept;

// A tensor of the first checkpoint and its counterpart in the second.
struct TensorPair {
  Change change = Change::none;
  std::optional<NamedTensor> old;  // unset: it was added
  std::optional<NamedTensor> now;  // unset: it was removed
  // The elements of either that is an array of numpy, which its file does not list as a tensor.
  std::shared_ptr<const NumpyValue> array;
  // Set if the elements were compared.
  std::optional<TensorDifference> found;
  // The reason why elements of one shape and dtype, or of two dtypes by value, were not compared.
  std::optional<Error> error;
};

// Returns pairs of the tensors whose names match one of the patterns, or of all; equal ones have
// the change none, and those that could not be compared not_compared. A tensor also corresponds to
// an array of numpy that the other file does not list. Tensors correspond by their
// paths, in which an index is not a key; among the others, tensors with the same bits count as
// renamed. Reads the elements of tensors of one shape, unless both checkpoints have one version of
// the same files. Fails with not_found if a pattern matches no tensor in either.
Result<std::vector<TensorPair>> compare_tensors(const Checkpoint& old, const Checkpoint& now,
                                                const std::vector<std::string>& patterns,
                                                const Progress& progress);

// True if both have one version of the same files.
bool have_same_files(const Checkpoint& a, const Checkpoint& b) noexcept;

}  // namespace weightmap::cli
