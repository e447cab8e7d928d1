// What tests give to long calls as their Progress.
#pragma once

#include "weightmap/result.hpp"

namespace weightmap::test {

// Calls a function without arguments each time, and goes on.
template <class Function>
Progress meanwhile(Function function) {
  return [function](std::uint64_t, std::uint64_t) {
    function();
    return true;
  };
}

// Stops whatever asks.
inline const Progress stop = [](std::uint64_t, std::uint64_t) { return false; };

}  // namespace weightmap::test
