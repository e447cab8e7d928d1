// What a long call tells while it works, and how it is stopped.
#pragma once

#include <cstdint>
#include <functional>

namespace weightmap {

// Is called with the bytes done and the bytes in all, again and again, and says whether to go on.
// After false the call stops at once, takes back what it began (a copy, an open) and fails with
// ErrorCode::cancelled. A call that has bytes to read or copy asks at least once for each 16 MiB.
// From which thread it is called, the function that takes it says; never from two at once. It must
// not throw.
using Progress = std::function<bool(std::uint64_t done, std::uint64_t all)>;

}  // namespace weightmap
