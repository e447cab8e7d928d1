// The order of the measurements.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace weightmap::cli::bench {

// Each round measures all contenders once, in a random order, so that none always follows the same
// one. The orders are the same in every run of the program.
class Turns {
 public:
  explicit Turns(std::size_t contenders);
  // Returns the contenders' indices in the order of the next round; valid until the next call.
  const std::vector<std::size_t>& next_round();

 private:
  std::vector<std::size_t> order_;
  std::mt19937 random_{7};
};

}  // namespace weightmap::cli::bench
