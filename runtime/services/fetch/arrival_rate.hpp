// How fast the bytes of a fetch arrive.
#pragma once

#include <chrono>
#include <cstdint>

namespace weightmap {

class ArrivalRate {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `received` bytes had come when it began.
  ArrivalRate() noexcept = default;
  ArrivalRate(Time began, std::uint64_t received) noexcept
      : window_began_(began), window_received_(received) {}

  // So many have come by now. Call it often.
  void note(Time now, std::uint64_t received) noexcept {
    const std::chrono::duration<double> seconds = now - window_began_;
    if (received < window_received_ || seconds.count() <= 0) return;
    const bool is_whole = seconds >= window;
    if (!is_whole && is_settled_) return;
    rate_ = static_cast<double>(received - window_received_) / seconds.count();
    if (!is_whole) return;
    is_settled_ = true;
    window_began_ = now;
    window_received_ = received;
  }

  // What comes in so long, by the last second, or less at the beginning.
  std::uint64_t bytes_in(std::chrono::duration<double> time) const noexcept {
    return static_cast<std::uint64_t>(rate_ * time.count());
  }

 private:
  static constexpr std::chrono::seconds window{1};

  Time window_began_ = {};
  std::uint64_t window_received_ = 0;
  double rate_ = 0;  // bytes a second
  bool is_settled_ = false;
};

}  // namespace weightmap
