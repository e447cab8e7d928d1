// Waits for a number to change, with a timeout, which std::atomic lacks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace weightmap::os {

// Who waits and wakes: threads of this process, or of all that have mapped the memory of the word.
enum class Waiters { of_process, of_memory };

// Returns when wake_all(word) is called, after `most`, or spuriously; at once if `word` is not
// `seen`. In a forked child it works as in its parent, and neither wakes the other (of_process).
void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                std::chrono::nanoseconds most, Waiters waiters = Waiters::of_process) noexcept;

void wake_all(const std::atomic<std::uint32_t>& word,
              Waiters waiters = Waiters::of_process) noexcept;

}  // namespace weightmap::os
