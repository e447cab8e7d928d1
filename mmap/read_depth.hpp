// How many reads to keep under way, found by measuring.
#pragma once

#include <chrono>
#include <cstdint>

#include "mmap/file.hpp"

namespace weightmap::os {

// Enough for a disk of the machine, and for what answers over a network.
inline constexpr unsigned local_depth = 4;
inline constexpr unsigned network_depth = 16;
inline constexpr unsigned most_depth = 64;

// By what statfs says of a file system. One that is not known to be local counts as remote, since
// too many reads cost memory for a moment and too few cost time.
unsigned depth_of_file_system(std::uint64_t type) noexcept;
unsigned depth_for(const File& file) noexcept;

// Doubles as long as that brings a fifth more bytes a second, up to most_depth, and takes the last
// step back that did not.
class ReadDepth {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit ReadDepth(unsigned first) noexcept : now_(first) {}

  unsigned now() const noexcept { return now_; }
  // A read has ended. Precondition: none of those before ended later.
  void ended(std::uint64_t bytes, Time when) noexcept;

 private:
  unsigned now_;
  unsigned reads_ = 0;  // that ended since there are so many
  std::uint64_t bytes_ = 0;
  Time began_{};
  double rate_before_ = 0;  // bytes a second with half as many
  bool is_settled_ = false;
};

}  // namespace weightmap::os
