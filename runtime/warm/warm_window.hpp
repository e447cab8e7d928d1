// How far a warmer runs ahead of the one who reads behind it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/warm/warm_plan.hpp"

namespace weightmap {

// Knows which steps are in memory and how much the reader has passed. All functions may be called
// from any thread.
class WarmWindow {
 public:
  // `ranges` are those that `plan` was made from. Steps that are in memory and that a range not
  // passed yet lies in have together at most `bytes`, or are a single step.
  WarmWindow(const WarmPlan& plan, std::span<const ByteRange> ranges, std::uint64_t bytes);

  enum class Turn : std::uint8_t {
    load,
    skip,  // the reader has passed it
    stop,  // stop() was called
  };
  // Blocks until the step may be loaded, or need not be.
  Turn wait_for_turn(std::size_t step);

  // The step is in memory now. Answers whether the reader has passed it meanwhile.
  bool loaded(std::size_t step);

  // The reader has done with the first `count` ranges. Answers the steps that no other range lies
  // in, whether the warmer or the reader itself brought them in; but none that is being loaded just
  // now, for which loaded() will say so. Never goes back.
  std::vector<std::size_t> pass(std::size_t count);

  // Nobody waits any more, now and later.
  void stop();

 private:
  enum class State : std::uint8_t { ahead, begun, loaded, passed };

  const WarmPlan& plan_;
  std::uint64_t bytes_;
  std::vector<std::size_t> by_last_range_;  // steps, those first that are passed first
  std::vector<std::size_t> last_range_;     // by step: the last range that lies in it

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex.
  std::vector<State> states_;    // by step
  std::size_t next_passed_ = 0;  // in by_last_range_
  std::uint64_t held_ = 0;       // bytes of the steps that are begun or loaded
  bool stopped_ = false;
};

}  // namespace weightmap
