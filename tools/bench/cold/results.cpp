#include "tools/bench/cold/results.hpp"

namespace weightmap::cli::bench {

std::string_view to_string(Scenario scenario) noexcept {
  switch (scenario) {
    case Scenario::cold:
      return "cold";
    case Scenario::warm:
      return "warm";
    case Scenario::poisoned:
      return "poisoned";
  }
  return "unknown";
}

std::string_view to_string(Order order) noexcept {
  switch (order) {
    case Order::file:
      return "file";
    case Order::random:
      return "random";
  }
  return "unknown";
}

}  // namespace weightmap::cli::bench
