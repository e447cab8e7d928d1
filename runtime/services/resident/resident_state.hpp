// The state of a ResidentSet.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/checkpoint/state.hpp"
#include "runtime/services/resident/memory_pressure.hpp"
#include "runtime/services/resident/placed_unit.hpp"
#include "runtime/services/resident/resident_table.hpp"
#include "runtime/services/resident/table_memory.hpp"
#include "runtime/services/resident/unit_reads.hpp"
#include "runtime/system/process/futex.hpp"
#include "weightmap/on_demand.hpp"

namespace weightmap {

struct ResidentSet::State {
  State(const Checkpoint::State& opened, std::vector<Unit> named, std::vector<PlacedUnit> placed,
        const ResidentOptions& options);

  const Checkpoint::State& checkpoint;
  const std::vector<Unit> units;
  const std::vector<PlacedUnit> placed;
  const ResidentOptions options;
  const std::shared_ptr<const EvictionPolicy> policy;
  const SlotPlan plan;
  std::unordered_map<std::string_view, std::size_t> by_name;
  std::unique_ptr<TableMemory> memory;
  const std::uint32_t forks;
  // When a unit was last found in the page cache, in ms of a coarse clock; 0: it is not used from
  // there. Any thread.
  std::unique_ptr<std::atomic<std::uint32_t>[]> cached_at;

  // What this process reads, until it is there; and what failed, until it is read again.
  std::mutex mutex;
  std::unordered_map<std::uint32_t, std::shared_ptr<UnitRead>> reading;  // protected by the mutex
  std::deque<std::uint32_t> to_prefetch;                                 // likewise

  std::unique_ptr<UnitReads> reads;
  std::unique_ptr<MemoryPressure> pressure;  // without a budget; ends first

  ResidentTable& table() const noexcept { return memory->table(); }
  std::byte* slot_of(std::uint32_t unit) const noexcept {
    return &memory->slots().bytes()[table().byte_of(unit)];
  }
  Result<void> start();
  bool is_of_parent() const noexcept;

  // True if the unit is to be used where it is in the mapping: it is cached, and mapped now.
  // `unchanged` is the file that is known to be the same, since this call has asked, and is set.
  bool use_mapping(std::uint32_t unit, const SourceFile*& unchanged);
  // True if all units have room, so that the page cache is the place for those that can be mapped.
  bool all_fit() const noexcept { return table().budget_bytes() >= plan.all_bytes(); }

  // Without a budget given: makes it that of now, of which one call needs so much.
  void follow_memory(std::uint64_t needed);
  // Likewise, from time to time; the first of those that share the set does. `root` as of
  // os::memory_limit().
  void look_at_memory(const std::filesystem::path& root = "/");

  // begin() gives it a slot. Precondition of that: the table says that this set reads the unit.
  std::shared_ptr<UnitRead> make_read(std::uint32_t unit, ReadTarget target);
  Result<void> allocate(std::uint32_t unit);  // memory for its slot
  void begin(const std::shared_ptr<UnitRead>& read);
  void finish(UnitRead& read);
  void forget_failure(std::uint32_t unit);  // of a read that has ended
  std::shared_ptr<UnitRead> next_prefetch();
  os::Waiters waiters() const noexcept;
  void wake() const noexcept;
  // Until the table's number of changes is another one, for a moment at most.
  void wait(std::uint32_t seen);
  Error about(std::uint32_t unit, Error error) const;
};

}  // namespace weightmap
