// The consumer: opens a file with a native engine and sums every byte of its tensors.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/cold/engines.hpp"
#include "tools/bench/cold/results.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

struct Consumed {
  Sample sample;
  std::uint64_t bytes = 0;
};

// Reads the tensors of these names, in this order: one byte of the first, then all of it, then all
// others. Fails as Checkpoint::open(), Warmer or the system do.
Result<Consumed> consume(const NativeEngine& engine, const std::string& file,
                         const std::vector<std::string>& names);

}  // namespace weightmap::cli::bench
