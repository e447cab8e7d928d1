// Work on many files, or many parts of some, a few at a time.
#pragma once

#include <cstddef>
#include <functional>

#include "weightmap/result.hpp"

namespace weightmap::format {

// Calls work(0), work(1) ... work(count - 1), up to eight at a time, in threads that have ended
// when this returns; the caller's thread is one of them. How long the first one took tells how many
// threads the others are worth. Answers the first failure by number; what one throws is thrown on.
Result<void> in_threads(std::size_t count,
                        const std::function<Result<void>(std::size_t number)>& work);

}  // namespace weightmap::format
