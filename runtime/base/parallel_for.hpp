// Work on numbers that several threads share.
#pragma once

#include <cstddef>
#include <functional>

#include "weightmap/result.hpp"

namespace weightmap {

using NumberedWork = std::function<Result<void>(std::size_t number)>;

// Calls work(0), work(1) ... work(count - 1) in up to `threads` threads, including the caller's,
// which have all ended when this returns. Calls start in this order, and none starts after a
// failure. Returns the failure of the lowest number; rethrows exceptions.
Result<void> parallel_for(std::size_t count, std::size_t threads, const NumberedWork& work);

// Does the same for calls of unknown duration: the time of the first one determines how many
// threads are worthwhile, up to eight. That may exceed the number of cores, since threads wait for
// reads of uncached data.
Result<void> parallel_for(std::size_t count, const NumberedWork& work);

}  // namespace weightmap
