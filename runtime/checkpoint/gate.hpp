// Gives threads that wait for a tensor the disk to themselves while warmers pause.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace weightmap {

// All functions may be called from any thread. A forked child starts without marks: those of the
// parent's threads do not count.
class Gate {
 public:
  // The maximum pause of a warmer before its next step. A longer demand loses a few hundredths of
  // its speed; continuous demands do not starve a warmer.
  static constexpr std::chrono::milliseconds longest_way{100};

  explicit Gate(std::chrono::nanoseconds longest = longest_way) noexcept;

  // While a mark exists, its thread waits for the disk.
  class Mark {
   public:
    explicit Mark(Gate& gate) noexcept : gate_(gate) { gate_.raise(); }
    ~Mark() { gate_.lower(); }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;

   private:
    Gate& gate_;
  };

  // Called by a warmer's thread between two steps. Returns when no thread waits for the disk, after
  // the maximum pause, or soon after `cancelled` was set and wake() called. Returns true if a
  // thread was waiting.
  bool give_way(const std::atomic<bool>& cancelled) noexcept;
  // Makes all pausing warmers check their `cancelled`.
  void wake() noexcept;

  bool is_demanded() const noexcept;

 private:
  void raise() noexcept;
  void lower() noexcept;

  const std::chrono::nanoseconds longest_;
  // The number of threads that wait for the disk; the upper 32 bits are their fork count.
  std::atomic<std::uint64_t> marks_{0};
  // Changes at the end of the last mark and at wake(), for pausing warmers.
  std::atomic<std::uint32_t> changes_{0};
};

}  // namespace weightmap
