// The fixtures, and checkpoints that must open.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/failures.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::test {

inline const std::filesystem::path data = WEIGHTMAP_TEST_DATA;

inline Checkpoint opened(const std::filesystem::path& path, const OpenOptions& options = {}) {
  Result<Checkpoint> checkpoint = Checkpoint::open(path, options);
  REQUIRE_OK(checkpoint);
  return std::move(*checkpoint);
}

inline std::vector<std::string> names_of(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : checkpoint.tensors()) names.emplace_back(tensor.name);
  return names;
}

// The elements of a tensor, row-major.
inline std::vector<std::byte> gathered(const Checkpoint& checkpoint, const TensorView& view) {
  std::vector<std::byte> elements(static_cast<std::size_t>(view.nbytes()));
  REQUIRE_OK(checkpoint.gather(view, elements));
  return elements;
}

}  // namespace weightmap::test
