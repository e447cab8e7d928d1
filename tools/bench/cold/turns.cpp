#include "tools/bench/cold/turns.hpp"

#include <algorithm>
#include <numeric>

namespace weightmap::cli::bench {

Turns::Turns(std::size_t contenders) : order_(contenders) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
}

const std::vector<std::size_t>& Turns::next_round() {
  std::shuffle(order_.begin(), order_.end(), random_);
  return order_;
}

}  // namespace weightmap::cli::bench
