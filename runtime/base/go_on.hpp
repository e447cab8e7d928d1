// Asks a caller's Progress whether to continue.
#pragma once

#include <cstdint>
#include <string>

#include "weightmap/result.hpp"

namespace weightmap {

inline Result<void> go_on(const Progress& progress, std::uint64_t done, std::uint64_t all) {
  if (!progress || progress(done, all)) return {};
  return failure(ErrorCode::cancelled, "was cancelled after " + std::to_string(done) + " of " +
                                           std::to_string(all) + " bytes");
}

}  // namespace weightmap
