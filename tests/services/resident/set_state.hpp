// The state of a set, which begins to read and to follow memory when a test says so.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/services/resident/placed_unit.hpp"
#include "runtime/services/resident/resident_state.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/on_demand.hpp"

namespace weightmap::test {

// Of all experts, without memory and threads.
inline std::unique_ptr<ResidentSet::State> set_state(const Checkpoint& checkpoint,
                                                     const ResidentOptions& options) {
  std::vector<Unit> units = expert_units(checkpoint).value();
  std::vector<PlacedUnit> placed;
  for (const Unit& unit : units) placed.push_back(place_unit(checkpoint, unit).value());
  return std::make_unique<ResidentSet::State>(Checkpoint::Access::state(checkpoint),
                                              std::move(units), std::move(placed), options);
}

}  // namespace weightmap::test
