// Lets those who wait for a tensor have the disk to themselves, while warmers wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace weightmap {

// All functions may be called from any thread. In a forked child nobody demands anything until one
// of its own threads does: the marks of the parent's threads are not copied.
class Gate {
 public:
  // So long a warmer gives way before it brings in its next step, at most. A demand for more than
  // the disk reads meanwhile loses a few hundredths of it; demands without a gap do not keep a
  // warmer from its end.
  static constexpr std::chrono::milliseconds longest_way{100};

  explicit Gate(std::chrono::nanoseconds longest = longest_way) noexcept;

  // While one lives, its thread waits for the disk.
  class Mark {
   public:
    explicit Mark(Gate& gate) noexcept : gate_(gate) { gate_.raise(); }
    ~Mark() { gate_.lower(); }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;

   private:
    Gate& gate_;
  };

  // Called by a warmer's thread between two steps. Returns when nobody waits for the disk, after
  // the longest time, or soon after `cancelled` was set and wake() called. Answers whether somebody
  // waited.
  bool give_way(const std::atomic<bool>& cancelled) noexcept;
  // All who give way look at their `cancelled`.
  void wake() noexcept;

  bool is_demanded() const noexcept;

 private:
  void raise() noexcept;
  void lower() noexcept;

  const std::chrono::nanoseconds longest_;
  // How many threads wait for the disk; above 32 bits, the number of forks that they belong to.
  std::atomic<std::uint64_t> marks_{0};
  // Counts what those who give way have to look at: the last mark's end, and wake().
  std::atomic<std::uint32_t> changes_{0};
};

}  // namespace weightmap
