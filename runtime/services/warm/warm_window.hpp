// Limits how far a warmer runs ahead of its consumer.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/services/warm/warm_plan.hpp"

namespace weightmap {

// Tracks the steps in memory and the consumer's progress. All functions are thread-safe.
class WarmWindow {
 public:
  // `ranges` are those of `plan`. Steps in memory that contain a range not passed yet have at most
  // `bytes` together, or are a single step.
  WarmWindow(const WarmPlan& plan, std::span<const ByteRange> ranges, std::uint64_t bytes);

  // Blocks until the step may be filled. Returns false if the consumer has passed it meanwhile, or
  // stop() was called.
  bool wait_for_turn(std::size_t step);

  // Reports that the step is in memory. Returns true if the consumer has passed it meanwhile.
  bool loaded(std::size_t step);

  // Reports that the consumer has finished with the first `count` ranges; never decreases. Returns
  // the steps without other ranges, whether the warmer or the consumer read them, except steps that
  // are just being filled, for which filled() will return true.
  std::vector<std::size_t> pass(std::size_t count);

  // Ends all current and future waiting.
  void stop();

 private:
  enum class State : std::uint8_t { ahead, begun, loaded, passed };

  const WarmPlan& plan_;
  std::uint64_t bytes_;
  std::vector<std::size_t> by_last_range_;  // steps in the order in which they are passed
  std::vector<std::size_t> last_range_;     // by step: its last range

  std::mutex mutex_;
  std::condition_variable changed_;
  // Protected by the mutex.
  std::vector<State> states_;    // by step
  std::size_t next_passed_ = 0;  // in by_last_range_
  std::uint64_t held_ = 0;       // bytes of the steps that are begun or loaded
  bool stopped_ = false;
};

}  // namespace weightmap
