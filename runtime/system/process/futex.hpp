// Waits for a number to change, with a timeout, which std::atomic lacks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace weightmap::os {

// Returns when wake_all(word) is called, after `most`, or spuriously; at once if `word` is not
// `seen`. In a forked child it works as in its parent, and neither wakes the other.
void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                std::chrono::nanoseconds most) noexcept;

void wake_all(const std::atomic<std::uint32_t>& word) noexcept;

}  // namespace weightmap::os
