// Which tensors of two checkpoints were added, removed, renamed or changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/difference.hpp"

namespace weightmap::cli {

enum class Change : std::uint8_t { none, changed, renamed, removed, added, not_compared };
inline constexpr std::size_t change_count = static_cast<std::size_t>(Change::not_compared) + 1;

std::string_view to_string(Change change) noexcept;

// A tensor of the first checkpoint and the one of the second that stands for it.
struct TensorPair {
  Change change = Change::none;
  std::optional<NamedTensor> old;  // nothing: it was added
  std::optional<NamedTensor> now;  // nothing: it was removed
  // Of those whose elements were compared.
  std::optional<TensorDifference> found;
  // Why elements of one shape and dtype were not compared, or of two dtypes not by value.
  std::optional<Error> error;
};

// Pairs of the tensors of both whose names match one of the patterns, or of all; those with equal
// elements have the change none, those that could not be compared not_compared. Tensors are the
// same by their paths, in which an index is no key; of the others, those with the same bits are
// renamed. Reads the elements of tensors of one shape, unless both checkpoints are of one version
// of the same files. Fails with not_found if a pattern matches no tensor in either.
Result<std::vector<TensorPair>> compare_tensors(const Checkpoint& old, const Checkpoint& now,
                                                const std::vector<std::string>& patterns,
                                                const Progress& progress);

// Whether both are of one version of the same files.
bool have_same_files(const Checkpoint& a, const Checkpoint& b) noexcept;

}  // namespace weightmap::cli
