// When a start is over: what --ready says, or a disk that is still.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>

#include "weightmap/result.hpp"

namespace weightmap::cli::start {

struct ReadyUrl {
  std::string host, port, path;
};
struct ReadyPort {
  std::string port;
};
struct ReadyFile {
  std::string path;
};
// Monostate: when nothing new was opened and nothing read for a while.
using Ready = std::variant<std::monostate, ReadyUrl, ReadyPort, ReadyFile, std::chrono::seconds>;

// Parses "http://HOST:PORT/PATH", "PORT", "30s" or the path of a file, which has a slash.
Result<Ready> parse_ready(const std::string& text);

class Readiness {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Readiness(Ready ready, Clock::time_point now = Clock::now())
      : ready_(std::move(ready)), began_(now), changed_(now) {}

  // Asks once. `activity` is any number that grows while the start goes on.
  bool is_over(std::uint64_t activity, Clock::time_point now = Clock::now());
  // True for a start that is over only since no start takes that long.
  bool gave_up() const noexcept { return gave_up_; }
  // Returns when a start that is over by now was: before the disk was still.
  Clock::time_point end(Clock::time_point now = Clock::now()) const noexcept;

 private:
  Ready ready_;
  Clock::time_point began_, changed_;
  std::uint64_t activity_ = 0;
  bool gave_up_ = false;
};

}  // namespace weightmap::cli::start
