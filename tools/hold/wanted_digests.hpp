// The SHA-256s without which nothing is held.
#pragma once

#include "weightmap/fetch.hpp"

namespace weightmap::cli::hold {

struct WantedDigests {
  // Unless empty, nothing is held that is not among them: a file by its name, or the only one by
  // "".
  Sha256Sums sums = {};
  // Nothing is held of which neither they nor its store say one.
  bool are_required = false;

  bool are_wanted() const noexcept { return are_required || !sums.empty(); }
};

}  // namespace weightmap::cli::hold
