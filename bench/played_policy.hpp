// Plays calls of acquire() through an EvictionPolicy, as a ResidentSet with room for so many units
// would, without any bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "weightmap/on_demand.hpp"

class PlayedPolicy {
 public:
  // Preconditions: policy; `room` is as many as any call names at least.
  PlayedPolicy(std::shared_ptr<const weightmap::EvictionPolicy> policy, std::size_t units,
               std::size_t room)
      : policy_(std::move(policy)), histories_(units), is_there_(units), room_(room) {}

  struct Call {
    std::vector<std::size_t> missing;  // units that came
    std::vector<std::size_t> gone;     // units that went, in this order
  };
  // Precondition: each unit once.
  Call acquire(std::span<const std::size_t> units) {
    Call call;
    for (const std::size_t unit : units)
      if (!is_there_[unit]) call.missing.push_back(unit);
    while (there_ + call.missing.size() > room_) call.gone.push_back(evict(units));
    ++now_;
    for (const std::size_t unit : units) use(unit);
    return call;
  }

 private:
  // None of this call.
  std::size_t evict(std::span<const std::size_t> called) {
    std::vector<std::size_t> units;
    std::vector<weightmap::UnitHistory*> histories;
    for (std::size_t unit = 0; unit < is_there_.size(); ++unit) {
      if (!is_there_[unit] || std::ranges::find(called, unit) != called.end()) continue;
      units.push_back(unit);
      histories.push_back(&histories_[unit]);
    }
    const std::size_t gone = units[policy_->choose(histories, now_)];
    is_there_[gone] = false;
    --there_;
    return gone;
  }

  void use(std::size_t unit) {
    weightmap::UnitHistory& history = histories_[unit];
    history.last_used = now_;
    ++history.uses;
    if (is_there_[unit]) return policy_->hit(history, now_);
    history.entered = now_;
    policy_->entered(history, now_);
    is_there_[unit] = true;
    ++there_;
  }

  std::shared_ptr<const weightmap::EvictionPolicy> policy_;
  std::vector<weightmap::UnitHistory> histories_;
  std::vector<bool> is_there_;
  std::size_t room_, there_ = 0;
  std::uint64_t now_ = 0;
};
