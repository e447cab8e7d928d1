// One call of ResidentSet::acquire() that does not find all in slots.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/services/resident/resident_state.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

class Acquiring {
 public:
  Acquiring(ResidentSet::State& set, std::span<const std::size_t> units);
  Acquiring(const Acquiring&) = delete;
  Acquiring& operator=(const Acquiring&) = delete;
  ~Acquiring();  // ends what it has, unless it is kept

  // Returns when all units are there, and held for this call.
  Result<void> run();
  bool is_in_mapping(std::uint32_t unit) const;
  // The holds are those of leases from now on.
  void keep() noexcept { is_kept_ = true; }

 private:
  using Clock = std::chrono::steady_clock;

  Result<void> check_room() const;
  bool has_to_be_there(std::uint32_t unit) const;
  void find_in_mapping();
  Result<void> map_rest();
  Result<void> hold_slots();
  bool try_to_hold(std::uint32_t& seen, std::vector<std::uint32_t>& missing);
  bool give_up_reads_ahead();
  void start_reads(const std::vector<std::uint32_t>& missing);
  Result<bool> wait_for_slots();
  Result<void> error_of(std::uint32_t unit);
  tl::unexpected<Error> no_room() const;
  void let_go() noexcept;

  ResidentSet::State& set_;
  const std::span<const std::size_t> units_;
  std::vector<std::uint32_t> once_;               // each unit, by number
  std::vector<std::uint32_t> in_mapping_;         // of these, by number
  std::vector<std::uint32_t> in_slots_;           // likewise: all others
  std::vector<std::shared_ptr<UnitRead>> loads_;  // into the mapping
  const Clock::time_point begin_ = Clock::now();
  bool is_held_ = false;
  bool waits_for_room_ = false;  // and the table knows
  bool will_fit_ = false;        // without the end of a lease
  bool is_counted_ = false;
  bool is_kept_ = false;
};

}  // namespace weightmap
