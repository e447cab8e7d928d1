// What is read ahead yields to what is waited for.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "mmap/memory/copy_file.hpp"
#include "runtime/services/resident/acquire.hpp"
#include "tests/services/resident/experts_file.hpp"
#include "tests/services/resident/set_state.hpp"

using namespace weightmap;
using namespace weightmap::test;

namespace {

// A set that waits for no lease. Each of its threads stands still before it looks for something to
// read ahead, and when it has read a unit, until it is told to go on.
class HeldSet : public Experts {
 public:
  explicit HeldSet(std::uint64_t slots = 2)
      : set_(set_state(checkpoint, {.budget_bytes = slots * slot_bytes, .wait_ms = 0})) {
    evict_file(path);
    set_->memory = TableMemory::of({}, {}, set_->plan, *set_->policy, slots * slot_bytes).value();
    set_->reads = std::make_unique<UnitReads>(
        set_->checkpoint, [this](UnitRead& read) { end(read); }, [this] { return next(); });
    REQUIRE_OK(set_->reads->start(set_->placed));
    const os::File file = os::File::open(path, false).value();
    const unsigned threads = std::max(mmap::local_reads, mmap::reads_at_a_time(file));
    for (unsigned stand = 1; stand <= threads; ++stand) {
      set_->reads->look_for_more();
      while (looking_ < stand) std::this_thread::yield();
    }
  }
  ~HeldSet() { let_all_go(); }

  void let_one_look() { may_look_.release(); }
  void let_one_end() { may_end_.release(); }
  void let_all_end() { may_end_.release(1000); }
  void let_all_go() {
    may_look_.release(1000);
    let_all_end();
  }

  void prefetch(std::initializer_list<std::uint32_t> units) {
    const std::scoped_lock lock(set_->mutex);
    set_->to_prefetch = units;
  }
  // As a thread does that looks; nullptr if it was not to begin.
  std::shared_ptr<UnitRead> begin_ahead(std::uint32_t unit) {
    prefetch({unit});
    return set_->next_prefetch();
  }
  // As another call has it given up.
  void give_up(UnitRead& read) {
    read.error = Error{ErrorCode::cancelled, "given up"};
    set_->finish(read);
  }
  // In a thread of its own. True if their bytes came.
  std::future<bool> acquire(const std::vector<std::size_t>& units) {
    return std::async(std::launch::async, [this, units] {
      Acquiring acquiring(*set_, units);
      return acquiring.run() && std::ranges::all_of(units, [this](std::size_t unit) {
               const std::byte* const down = set_->slot_of(static_cast<std::uint32_t>(unit)) +
                                             set_->placed[unit].parts[0].in_slot;
               return text_of({down, down_bytes}) == filled('d', unit, down_bytes);
             });
    });
  }
  // As a call does before it wants the unit.
  void pin(std::uint32_t unit) {
    const ResidentTable::Lock lock(set_->table());
    set_->table().pin(unit, set_->memory->member());
  }
  // Until so many calls wait, or the last of them does not.
  void until_waiting(unsigned calls, const std::future<bool>& last) const {
    const auto has_ended = [&] {
      return last.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    while (set_->table().waiters() < calls && !has_ended()) std::this_thread::yield();
  }
  // The units in the order in which they were read, once there are so many.
  std::vector<std::uint32_t> until_read(std::size_t count) {
    for (;; std::this_thread::yield()) {
      const std::scoped_lock lock(mutex_);
      if (read_.size() >= count) return read_;
    }
  }
  UnitState state(std::uint32_t unit) const {
    const ResidentTable::Lock lock(set_->table());
    return set_->table().state(unit);
  }
  std::uint64_t prefetched() const {
    const ResidentTable::Lock lock(set_->table());
    return set_->table().counters().prefetched;
  }

 private:
  std::shared_ptr<UnitRead> next() {
    ++looking_;
    may_look_.acquire();
    return set_->next_prefetch();
  }
  void end(UnitRead& read) {
    {
      const std::scoped_lock lock(mutex_);
      read_.push_back(read.unit);
    }
    if (!read.has_failed()) may_end_.acquire();
    set_->finish(read);
  }

  std::atomic<unsigned> looking_{0};
  std::counting_semaphore<> may_look_{0}, may_end_{0};
  std::mutex mutex_;
  std::vector<std::uint32_t> read_;  // protected by the mutex
  std::unique_ptr<ResidentSet::State> set_;
};

struct LargeHeldSet : HeldSet {
  LargeHeldSet() : HeldSet(4) {}
};

}  // namespace

TEST_CASE_FIXTURE(HeldSet, "What is acquired is read before what was to be read ahead") {
  prefetch({8, 9, 10});
  std::future<bool> call = acquire({1});
  until_waiting(1, call);
  let_one_look();  // the thread has 1 and 8 to choose from then
  CHECK(until_read(1) == std::vector<std::uint32_t>{1});
  CHECK(state(8) == UnitState::being_read);
  let_all_go();
  CHECK(call.get());
}

TEST_CASE_FIXTURE(HeldSet, "A call gets the room of what is to be read ahead and has not begun") {
  prefetch({8});
  std::future<bool> first = acquire({1});
  until_waiting(1, first);
  let_one_look();
  until_read(1);
  CHECK(state(8) == UnitState::being_read);
  std::future<bool> second = acquire({2});
  until_waiting(2, second);
  CHECK(state(2) == UnitState::being_read);
  CHECK(state(8) == UnitState::absent);
  let_all_go();
  CHECK(first.get());
  CHECK(second.get());
  CHECK(prefetched() == 0);
  CHECK(acquire({8}).get());
}

TEST_CASE_FIXTURE(HeldSet, "What this call or another one waits for is not given up") {
  prefetch({8});
  std::future<bool> call = acquire({1});
  until_waiting(1, call);
  let_one_look();
  until_read(1);
  std::future<bool> of_both = acquire({2, 8});
  until_waiting(2, of_both);
  CHECK(state(8) == UnitState::being_read);
  pin(8);
  std::future<bool> of_other = acquire({2});
  until_waiting(2, of_other);
  CHECK(state(8) == UnitState::being_read);
  let_all_go();
  CHECK(call.get());
  CHECK_FALSE(of_both.get());  // there was no room
  CHECK_FALSE(of_other.get());
}

TEST_CASE_FIXTURE(HeldSet, "Who waits for what was given up reads it anew") {
  const std::shared_ptr<UnitRead> read = begin_ahead(8);
  std::future<bool> call = acquire({8});
  until_waiting(1, call);
  give_up(*read);
  let_all_go();
  CHECK(call.get());
}

TEST_CASE_FIXTURE(LargeHeldSet, "Nothing is begun ahead while a call waits for room") {
  prefetch({8, 9});
  let_one_look();
  until_read(1);
  let_one_look();
  until_read(2);
  std::future<bool> call = acquire({1, 2, 3});
  until_waiting(1, call);
  CHECK(begin_ahead(10) == nullptr);
  let_all_end();
  CHECK(call.get());
  CHECK(begin_ahead(10) != nullptr);
}

TEST_CASE_FIXTURE(LargeHeldSet, "What is to be read ahead comes first once it is acquired") {
  prefetch({8, 9});
  std::future<bool> first = acquire({1});
  until_waiting(1, first);
  std::future<bool> second = acquire({2});
  until_waiting(2, second);
  let_one_look();
  until_read(1);
  let_one_look();
  CHECK(until_read(2) == std::vector<std::uint32_t>{1, 2});
  std::future<bool> third = acquire({9});
  until_waiting(3, third);
  let_one_end();
  CHECK(until_read(3) == std::vector<std::uint32_t>{1, 2, 9});
  let_all_go();
  CHECK(first.get());
  CHECK(second.get());
  CHECK(third.get());
}

TEST_CASE_FIXTURE(HeldSet, "What is being read ahead is waited for, however short leases are") {
  prefetch({8, 9});
  let_one_look();
  until_read(1);
  let_one_look();
  until_read(2);
  std::future<bool> call = acquire({2});
  until_waiting(1, call);
  let_all_go();
  CHECK(call.get());
}

TEST_CASE_FIXTURE(Experts, "Reading ahead leaves each call its room") {
  const ResidentSet set = cold_set({.budget_bytes = 2 * slot_bytes, .wait_ms = 0});
  for (std::size_t i = 0; i < 200; ++i) {
    const auto unit = [i](std::size_t next) { return (i * 5 + next) % expert_count; };
    set.prefetch(std::vector<std::size_t>{unit(1), unit(2), unit(3)});
    for (const Lease& lease : leases_of(set, {unit(0), unit(2)})) CHECK(is_right(lease));
  }
}
