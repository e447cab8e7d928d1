// Work that several threads do, a number each.
#pragma once

#include <cstddef>
#include <functional>

#include "weightmap/result.hpp"

namespace weightmap {

using NumberedWork = std::function<Result<void>(std::size_t number)>;

// Calls work(0), work(1) ... work(count - 1) in up to `threads` threads, which have ended when this
// returns; the caller's thread is one of them. They are begun in this order, and none after one
// that failed. Answers the first failure by number; what one throws is thrown on.
Result<void> parallel_for(std::size_t count, std::size_t threads, const NumberedWork& work);

// The same where nobody knows what a call takes: how long the first one took tells how many threads
// the others are worth, up to eight. More than there are cores: of what is not cached, each thread
// waits for a read.
Result<void> parallel_for(std::size_t count, const NumberedWork& work);

}  // namespace weightmap
