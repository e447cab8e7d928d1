// The fixtures, and checkpoints that must open.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "tests/support/failures.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::test {

inline const std::filesystem::path data = WEIGHTMAP_TEST_DATA;

inline Checkpoint opened(const std::filesystem::path& path, const OpenOptions& options = {}) {
  Result<Checkpoint> checkpoint = Checkpoint::open(path, options);
  REQUIRE_OK(checkpoint);
  return std::move(*checkpoint);
}

}  // namespace weightmap::test
