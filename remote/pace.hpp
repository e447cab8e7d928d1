// How many requests are on their way at a time, and how long to wait before one is made again.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace weightmap::remote {

// The number of requests doubles as long as that makes the whole faster.
class Pace {
 public:
  static constexpr unsigned fewest = 16;
  static constexpr unsigned most = 64;
  static constexpr std::chrono::milliseconds window{1000};

  // 0: begins with `fewest`.
  explicit Pace(unsigned fixed) noexcept
      : limit_(fixed == 0 ? fewest : fixed), is_settled_(fixed != 0) {}

  unsigned limit() const noexcept { return limit_; }

  // `received` bytes have come after `elapsed`, both since the beginning. Call it often.
  void note(std::chrono::nanoseconds elapsed, std::uint64_t received) noexcept {
    if (is_settled_ || elapsed - window_began_ < window) return;
    const std::chrono::duration<double> seconds = elapsed - window_began_;
    const double rate = static_cast<double>(received - window_received_) / seconds.count();
    window_began_ = elapsed;
    window_received_ = received;
    is_settled_ = limit_ >= most || rate <= 1.1 * rate_before_;
    if (!is_settled_) limit_ = std::min(2 * limit_, most);
    rate_before_ = rate;
  }

 private:
  unsigned limit_;
  bool is_settled_;
  std::chrono::nanoseconds window_began_{0};
  std::uint64_t window_received_ = 0;
  double rate_before_ = 0;  // with half as many
};

// `failures` in a row, from 1; `random` from all numbers of 32 bits; `asked` is the server's
// Retry-After, 0 without one. Doubles from 100 ms up to 10 s, of which the upper half is random, so
// that many clients do not come back at once.
constexpr std::chrono::milliseconds backoff(unsigned failures, std::uint32_t random,
                                            std::chrono::seconds asked) noexcept {
  using std::chrono::milliseconds;
  constexpr std::uint64_t longest = 10'000;
  constexpr std::chrono::seconds longest_asked{60};
  const std::uint64_t whole =
      std::min(longest, std::uint64_t{100} << std::min(std::max(failures, 1u) - 1, 7u));
  const std::uint64_t half = whole / 2;
  const milliseconds own{half + (half * random >> 32)};
  return std::max<milliseconds>(own, std::min(asked, longest_asked));
}

}  // namespace weightmap::remote
