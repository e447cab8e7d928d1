// Policies of ResidentSet. What they know lies in the histories: there is no queue and no hand, but
// each unit knows its place in them. Units of one call have equal times, and any order.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "weightmap/on_demand.hpp"

namespace weightmap {

EvictionPolicy::~EvictionPolicy() = default;

namespace {

using Units = std::span<UnitHistory* const>;

// A unit that was prefetched has not been used since it came.
std::uint64_t last_time(const UnitHistory& unit) noexcept {
  return std::max(unit.last_used, unit.entered);
}

// Returns the position of the unit with the smallest key of those for which `is_one` holds;
// units.size() if there is none.
template <class IsOne, class Key>
std::size_t smallest(Units units, const IsOne& is_one, const Key& key) noexcept {
  std::size_t found = units.size();
  for (std::size_t i = 0; i < units.size(); ++i)
    if (is_one(*units[i]) && (found == units.size() || key(*units[i]) < key(*units[found])))
      found = i;
  return found;
}

constexpr auto any_unit = [](const UnitHistory&) { return true; };

class Lru final : public EvictionPolicy {
 public:
  std::string_view name() const noexcept override { return "lru"; }
  void hit(UnitHistory&, std::uint64_t) const noexcept override {}
  void entered(UnitHistory&, std::uint64_t) const noexcept override {}
  std::size_t choose(Units units, std::uint64_t) const noexcept override {
    return smallest(units, any_unit, last_time);
  }
};

// `own` is the period of calls in which the uses were counted last, and their number in 65536ths:
// those of the period before count half, and so on. Units that left keep theirs.
class Lfu final : public EvictionPolicy {
 public:
  std::string_view name() const noexcept override { return "lfu"; }
  void hit(UnitHistory& unit, std::uint64_t now) const noexcept override { count(unit, now); }
  void entered(UnitHistory& unit, std::uint64_t now) const noexcept override { count(unit, now); }
  std::size_t choose(Units units, std::uint64_t now) const noexcept override {
    return smallest(units, any_unit, [now](const UnitHistory& unit) {
      return std::pair(uses(unit, now), last_time(unit));
    });
  }

 private:
  static constexpr std::uint64_t calls_a_period = 1024;
  static constexpr unsigned bits = 32;
  static constexpr std::uint64_t one = 1u << 16, most = 0xFFFFFFFF;

  static std::uint64_t uses(const UnitHistory& unit, std::uint64_t now) noexcept {
    const std::uint64_t periods = now / calls_a_period - (unit.own >> bits);
    return periods < bits ? (unit.own & most) >> periods : 0;
  }
  static void count(UnitHistory& unit, std::uint64_t now) noexcept {
    const std::uint64_t counted = std::min(uses(unit, now) + one, most);
    unit.own = (now / calls_a_period) << bits | counted;
  }
};

// A hand goes from the oldest unit to the youngest and around again: a unit that was used since it
// last came by stays, the first other one goes. `own` is the lowest bit for such a use, and above
// it the round in which the hand comes by next; 0: the round that it is in, as the last.
class Sieve final : public EvictionPolicy {
 public:
  std::string_view name() const noexcept override { return "sieve"; }
  void hit(UnitHistory& unit, std::uint64_t) const noexcept override { unit.own |= used; }
  void entered(UnitHistory& unit, std::uint64_t) const noexcept override { unit.own = 0; }
  std::size_t choose(Units units, std::uint64_t) const noexcept override {
    join_round(units);
    const auto key = [](const UnitHistory& unit) {
      return std::pair(unit.own / a_round, unit.entered);
    };
    const auto is_unused = [](const UnitHistory& unit) { return (unit.own & used) == 0; };
    std::size_t chosen = smallest(units, is_unused, key);
    const bool goes_around = chosen == units.size();
    if (goes_around) chosen = smallest(units, any_unit, key);
    const auto end = key(*units[chosen]);
    for (UnitHistory* const unit : units)
      if (!is_unused(*unit) && (goes_around || key(*unit) < end)) unit->own += a_round - used;
    return chosen;
  }

 private:
  static constexpr std::uint64_t used = 1, a_round = 2;

  static void join_round(Units units) noexcept {
    std::uint64_t round = std::numeric_limits<std::uint64_t>::max() / a_round;
    for (const UnitHistory* const unit : units)
      if (unit->own >= a_round) round = std::min(round, unit->own / a_round);
    if (round == std::numeric_limits<std::uint64_t>::max() / a_round) round = 1;
    for (UnitHistory* const unit : units)
      if (unit->own < a_round) unit->own += round * a_round;
  }
};

// Three queues. What is new is in a small one, of a tenth of all; of its old end, what was used
// twice since goes to the main one, and all else out, and to the ghosts, which are remembered for
// as long as the main queue has entries. A ghost that comes back goes to the main one; there, what
// was used begins anew at its end, with one use less.
// `own` is, from the lowest bit: two of uses, two of the queue, and a time: for the main queue when
// it joined, for a ghost until when it is remembered.
class S3Fifo final : public EvictionPolicy {
 public:
  std::string_view name() const noexcept override { return "s3fifo"; }
  void hit(UnitHistory& unit, std::uint64_t) const noexcept override {
    if (uses(unit) < most_uses) ++unit.own;
  }
  void entered(UnitHistory& unit, std::uint64_t now) const noexcept override {
    const bool is_remembered = queue(unit) == ghost && now <= time(unit);
    unit.own = is_remembered ? word(now, main, 0) : word(0, small, 0);
  }
  std::size_t choose(Units units, std::uint64_t now) const noexcept override {
    const auto in_small = static_cast<std::size_t>(
        std::ranges::count_if(units, [](const UnitHistory* unit) { return !is_main(*unit); }));
    std::size_t chosen = units.size();
    if (in_small * 10 >= units.size()) chosen = leave_small(units, in_small, now);
    while (chosen == units.size()) chosen = leave_main(units, now);
    return chosen;
  }

 private:
  static constexpr std::uint64_t most_uses = 3, small = 1, main = 2, ghost = 3;

  static std::uint64_t uses(const UnitHistory& unit) noexcept { return unit.own & most_uses; }
  static std::uint64_t queue(const UnitHistory& unit) noexcept { return unit.own >> 2 & 3; }
  static std::uint64_t time(const UnitHistory& unit) noexcept { return unit.own >> 4; }
  static std::uint64_t word(std::uint64_t time, std::uint64_t queue, std::uint64_t uses) noexcept {
    return time << 4 | queue << 2 | uses;
  }
  static bool is_main(const UnitHistory& unit) noexcept { return queue(unit) == main; }

  // Returns the position of the one that goes; units.size() if all of them go to the main queue.
  static std::size_t leave_small(Units units, std::size_t in_small, std::uint64_t now) noexcept {
    const std::size_t chosen = smallest(
        units, [](const UnitHistory& unit) { return !is_main(unit) && uses(unit) < 2; },
        [](const UnitHistory& unit) { return unit.entered; });
    const bool all_stay = chosen == units.size();
    const std::uint64_t end = all_stay ? now + 1 : units[chosen]->entered;
    for (UnitHistory* const unit : units) {
      if (is_main(*unit) || uses(*unit) < 2 || unit->entered >= end) continue;
      unit->own = word(now, main, 0);
      --in_small;
    }
    if (all_stay) return chosen;
    // As long as a queue of the main one's length would take at this one's pace.
    const std::uint64_t remembered = (now - end) * (units.size() - in_small) / in_small;
    units[chosen]->own = word(now + remembered, ghost, 0);
    return chosen;
  }

  // Likewise; units.size() if all have been used, once less from now on.
  static std::size_t leave_main(Units units, std::uint64_t now) noexcept {
    const auto key = [](const UnitHistory& unit) { return std::pair(time(unit), unit.entered); };
    const std::size_t chosen = smallest(
        units, [](const UnitHistory& unit) { return is_main(unit) && uses(unit) == 0; }, key);
    const bool all_stay = chosen == units.size();
    const auto end = all_stay ? std::pair(now, now) : key(*units[chosen]);
    for (UnitHistory* const unit : units)
      if (is_main(*unit) && uses(*unit) != 0 && (all_stay || key(*unit) < end))
        unit->own = word(now, main, uses(*unit) - 1);
    return chosen;
  }
};

}  // namespace

std::shared_ptr<const EvictionPolicy> eviction_policy(std::string_view name) {
  if (name == "lru") return std::make_shared<Lru>();
  if (name == "lfu") return std::make_shared<Lfu>();
  if (name == "sieve") return std::make_shared<Sieve>();
  if (name == "s3fifo") return std::make_shared<S3Fifo>();
  return nullptr;
}

}  // namespace weightmap
