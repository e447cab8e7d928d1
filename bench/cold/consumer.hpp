// The consumer: opens a file in one of the native ways and adds up every byte of its tensors.
#pragma once

#include <string>
#include <vector>

#include "bench/cold/engines.hpp"
#include "bench/cold/results.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

struct Consumed {
  Sample sample;
  std::uint64_t bytes = 0;
};

// Reads the tensors of these names, in this order: of the first one byte, then all of it, then all
// others. Fails as Checkpoint::open(), Warmer or the system do.
Result<Consumed> consume(const NativeEngine& engine, const std::string& file,
                         const std::vector<std::string>& names);

}  // namespace weightmap::cli::bench
