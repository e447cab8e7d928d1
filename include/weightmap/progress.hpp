// Progress reports of long calls, and their cancellation.
#pragma once

#include <cstdint>
#include <functional>

namespace weightmap {

// Called repeatedly with the bytes done and the bytes in all; returns whether to continue. After
// false the call stops at once, undoes what it began (a copy, an open) and fails with
// ErrorCode::cancelled. A call that reads or copies bytes calls it at least once per 16 MiB. Each
// function documents the thread from which it calls it, never two at once. It must not throw.
using Progress = std::function<bool(std::uint64_t done, std::uint64_t all)>;

}  // namespace weightmap
