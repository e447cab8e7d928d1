// Which units are in which slots, who has them, and what is to go: in memory that several processes
// may have mapped. Reads nothing, and knows no file.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "mmap/memory/slot_memory.hpp"
#include "runtime/system/process/shared_mutex.hpp"
#include "weightmap/on_demand.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Where each slot lies. Slots of one size are side by side; a size has as many addresses as it
// could use, since memory comes and goes with what is in them.
class SlotPlan {
 public:
  // `slot_bytes` of each unit; no more than `most_bytes` are used at a time.
  SlotPlan(std::vector<std::uint64_t> slot_bytes, std::uint64_t most_bytes);

  struct Size {
    std::uint64_t slot_bytes;
    std::uint64_t first_byte;
    std::uint32_t first_slot;
    std::uint32_t count;
  };
  std::span<const Size> sizes() const noexcept { return sizes_; }
  std::uint32_t size_of(std::uint32_t unit) const noexcept { return size_of_[unit]; }
  std::uint64_t slot_bytes(std::uint32_t unit) const noexcept {
    return sizes_[size_of_[unit]].slot_bytes;
  }
  std::uint32_t units() const noexcept { return static_cast<std::uint32_t>(size_of_.size()); }
  std::uint32_t slots() const noexcept { return slots_; }
  std::uint64_t memory_bytes() const noexcept { return memory_bytes_; }
  std::uint64_t all_bytes() const noexcept { return all_bytes_; }  // if all units had slots
  const Size& size_of_slot(std::uint32_t slot) const noexcept;
  std::uint64_t byte_of(std::uint32_t slot) const noexcept;

 private:
  std::vector<Size> sizes_;
  std::vector<std::uint32_t> size_of_;
  std::uint32_t slots_ = 0;
  std::uint64_t memory_bytes_ = 0;
  std::uint64_t all_bytes_ = 0;
};

enum class UnitState : std::uint8_t { absent, being_read, resident };

class ResidentTable {
 public:
  static constexpr unsigned most_members = 64;  // processes, or sets of one
  static constexpr std::uint32_t no_slot = ~std::uint32_t{0};

  // Everything refers to `memory`, of bytes_for(plan), zeros for a new table.
  ResidentTable(std::span<std::byte> memory, const SlotPlan& plan, const EvictionPolicy& policy,
                const mmap::SlotMemory& slots) noexcept;
  static std::uint64_t bytes_for(const SlotPlan& plan) noexcept;

  // Makes the table of zeros one for the users.
  Result<void> begin(os::SharedMutex::Users users, std::uint64_t budget_bytes);

  struct Counters {
    std::uint64_t hits, misses, missed_bytes, read_bytes, prefetched, evicted, waited_ns;
  };

  // Holds the lock. All other functions need one, but for changes().
  class Lock {
   public:
    explicit Lock(ResidentTable& table) noexcept : table_(table) {
      if (table.head_->mutex.lock()) table.repair();
    }
    ~Lock() { table_.head_->mutex.unlock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    ResidentTable& table_;
  };

  // A number that changes when a unit comes or fails, or may go; to wait for (futex.hpp).
  std::atomic<std::uint32_t>& changes() const noexcept { return head_->changes; }
  std::atomic<std::uint32_t>& waiters() const noexcept { return head_->waiters; }

  // One of those that use the table; how others find its memory (table_memory.hpp).
  struct Member {
    std::uint32_t process, descriptor;
    bool operator==(const Member&) const = default;
  };
  // Returns a number for one more; most_members if there is none left.
  unsigned join(Member member) noexcept;
  Member member(unsigned number) const noexcept { return head_->members[number]; }
  // Takes from the member what it has: its leases end, and what it was reading is absent.
  void leave(unsigned member) noexcept;
  bool is_member(unsigned member) const noexcept { return head_->is_member[member]; }
  unsigned members() const noexcept;

  UnitState state(std::uint32_t unit) const noexcept { return units_[unit].state; }
  unsigned reader(std::uint32_t unit) const noexcept { return units_[unit].reader; }
  UnitHistory& history(std::uint32_t unit) noexcept { return units_[unit].history; }
  std::uint64_t byte_of(std::uint32_t unit) const noexcept;  // precondition: it has a slot
  std::uint64_t next_time() noexcept { return ++head_->now; }

  void pin(std::uint32_t unit, unsigned member) noexcept;
  void unpin(std::uint32_t unit, unsigned member) noexcept;
  bool is_pinned(std::uint32_t unit) const noexcept { return units_[unit].pins != 0; }
  // The policy is told of a unit that is acquired, of whatever state.
  void use(std::uint32_t unit, std::uint64_t now, bool is_hit) noexcept;

  // Gives slots to absent units, for whom others may have to go; they are being read by the member
  // then. False, and nothing has changed, if leases and reads leave no room.
  bool reserve(std::span<const std::uint32_t> units, unsigned member);
  // True if such units will have room without the end of a lease: once reads that nobody waits for
  // have ended. Units that are pinned for the same call count as leased.
  bool will_fit(std::span<const std::uint32_t> units) const noexcept;
  // Calls of a member that wait for room; they count themselves.
  std::uint32_t& waiting_for_room(unsigned member) noexcept {
    return head_->waiting_for_room[member];
  }
  // reserve() for an absent unit that is read before it is acquired, of which the policy is told.
  // False also if a call waits for room.
  bool prefetch(std::uint32_t unit, unsigned member);
  bool has_memory(std::uint32_t unit) const noexcept { return slots_[slot(unit)].has_memory; }
  void got_memory(std::uint32_t unit) noexcept;
  // The end of a read.
  void finish(std::uint32_t unit, bool is_there) noexcept;

  std::uint64_t budget_bytes() const noexcept { return head_->budget_bytes; }
  // What is above it and can go goes at once.
  void set_budget(std::uint64_t bytes);
  // The most that a single call has needed.
  std::uint64_t& most_needed() noexcept { return head_->most_needed; }
  std::uint64_t used_bytes() const noexcept { return head_->used_bytes; }
  Counters& counters() noexcept { return head_->counters; }
  struct Count {
    std::uint64_t resident, leased;
  };
  Count count() const noexcept;

  // What whoever joins compares, at the beginning of the memory; zeros until the table is there.
  struct Terms {
    std::uint64_t units, budget_bytes, policy;
  };
  Terms& terms() noexcept { return head_->terms; }
  static Terms terms_in(std::span<const std::byte> memory) noexcept;
  static constexpr std::uint64_t terms_bytes() noexcept { return sizeof(Terms); }

 private:
  struct Head {
    Terms terms;
    os::SharedMutex mutex;
    std::atomic<std::uint32_t> changes, waiters;
    std::atomic<std::uint64_t> budget_bytes;  // read without the lock, too
    std::uint64_t used_bytes, memory_bytes, now, most_needed;
    Counters counters;
    bool is_member[most_members];
    Member members[most_members];
    std::uint32_t waiting_for_room[most_members];
  };
  struct UnitEntry {
    UnitHistory history;
    std::uint32_t pins;
    std::uint32_t slot_plus_one;  // 0: none
    UnitState state;
    std::uint8_t reader;
  };
  struct SlotEntry {
    std::uint32_t unit_plus_one;  // 0: none
    bool has_memory;
  };

  std::uint32_t slot(std::uint32_t unit) const noexcept { return units_[unit].slot_plus_one - 1; }
  std::uint32_t& pins_of(std::uint32_t unit, unsigned member) noexcept {
    return pins_[std::size_t{member} * plan_.units() + unit];
  }
  struct Candidates {
    std::vector<std::uint32_t> units;
    std::vector<UnitHistory*> histories;  // of these
    std::uint64_t bytes = 0;
  };
  Candidates evictable() const;
  void evict(Candidates& candidates) noexcept;
  void take_slot(std::uint32_t unit, unsigned member) noexcept;
  void free_slot(std::uint32_t unit) noexcept;
  void trim() noexcept;
  void repair() noexcept;

  const SlotPlan& plan_;
  const EvictionPolicy& policy_;
  const mmap::SlotMemory& memory_;
  Head* head_;
  UnitEntry* units_;
  SlotEntry* slots_;
  std::uint32_t* pins_;  // by member and unit
};

}  // namespace weightmap
