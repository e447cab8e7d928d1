// A set of slots that several processes use.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/services/resident/resident_table.hpp"
#include "tests/services/resident/experts_file.hpp"
#include "tests/support/variable.hpp"

using namespace weightmap;
using namespace weightmap::test;

namespace {

struct SharedExperts : Experts {
  TemporaryFolder runtime;
  Variable variable{"WEIGHTMAP_RUNTIME_DIR", runtime.path().string()};
  ResidentOptions shared{.budget_bytes = 3 * slot_bytes, .share = "team"};
};

int status_of(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE_FIXTURE(SharedExperts, "What one process has read is there for another one") {
  const WaitingChild child([&] {
    const Checkpoint own = Checkpoint::open(path).value();
    const ResidentSet other = ResidentSet::of(own, expert_units(own).value(), shared).value();
    const auto found = other.acquire(std::vector<std::size_t>{7, 2});
    return found && is_right((*found)[0]) && is_right((*found)[1]) && !(*found)[0].is_mapped() &&
           other.stats().hits == 2 && other.stats().processes == 2 &&
           other.stats().slot_bytes == 2 * slot_bytes;
  });
  const ResidentSet set = cold_set(shared);
  const std::vector<Lease> leases = leases_of(set, {2, 7});
  child.go();
  CHECK(child.status() == 0);
  CHECK(set.stats().misses == 2);
  CHECK(set.stats().processes == 1);
  CHECK(set.stats().leased_units == 2);
}

TEST_CASE_FIXTURE(SharedExperts, "Nothing stays in the runtime directory") {
  {
    const ResidentSet set = cold_set(shared);
    leases_of(set, {2, 7});
    CHECK_FALSE(runtime.names().empty());
  }
  CHECK(runtime.names().empty());
}

TEST_CASE_FIXTURE(SharedExperts, "The leases of a process that was killed end") {
  std::array<int, 2> ready{};
  REQUIRE(::pipe(ready.data()) == 0);
  const WaitingChild child([&] {
    const Checkpoint own = Checkpoint::open(path).value();
    const ResidentSet other = ResidentSet::of(own, expert_units(own).value(), shared).value();
    const auto held = other.acquire(std::vector<std::size_t>{0, 1, 2});
    static_cast<void>(::write(ready[1], held ? "y" : "n", 1));
    ::pause();
    return false;
  });
  const ResidentSet set = cold_set(shared);
  child.go();
  char answer = '?';
  REQUIRE(::read(ready[0], &answer, 1) == 1);
  REQUIRE(answer == 'y');
  CHECK(set.stats().leased_units == 3);
  child.kill();
  CHECK(child.status() == SIGKILL);
  for (const Lease& lease : leases_of(set, {3, 4, 5})) CHECK(is_right(lease));
  CHECK(set.stats().processes == 1);
  CHECK(set.stats().leased_units == 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE_FIXTURE(SharedExperts, "Reading ahead goes on when who left no room for it was killed") {
  const WaitingChild child([&] {
    const Checkpoint own = Checkpoint::open(path).value();
    const ResidentSet other = ResidentSet::of(own, expert_units(own).value(), shared).value();
    const auto held = other.acquire(std::vector<std::size_t>{0, 1, 2});
    ::raise(SIGKILL);
    return held.has_value();
  });
  const ResidentSet set = cold_set(shared);
  child.go();
  CHECK(child.status() == SIGKILL);
  while (set.history()[4].entered == 0) {  // the first of them may notice it
    set.prefetch(std::vector<std::size_t>{4});
    std::this_thread::yield();
  }
}

TEST_CASE_FIXTURE(SharedExperts, "A process that joins after another was killed finds the others") {
  const WaitingChild killed([&] {
    const Checkpoint own = Checkpoint::open(path).value();
    const ResidentSet other = ResidentSet::of(own, expert_units(own).value(), shared).value();
    ::raise(SIGKILL);
    return false;
  });
  const ResidentSet set = cold_set(shared);
  leases_of(set, {4});
  killed.go();
  CHECK(killed.status() == SIGKILL);
  CHECK(runtime.names().size() == 2);
  const ResidentSet other =
      ResidentSet::of(checkpoint, expert_units(checkpoint).value(), shared).value();
  CHECK(other.stats().processes == 2);
  CHECK(other.stats().resident_units == 1);
}

TEST_CASE_FIXTURE(SharedExperts, "Four processes that want the same slots get what they want") {
  std::vector<std::unique_ptr<WaitingChild>> children;
  for (std::size_t first = 0; first < 4; ++first)
    children.push_back(std::make_unique<WaitingChild>([&, first] {
      const Checkpoint own = Checkpoint::open(path).value();
      const ResidentSet other = ResidentSet::of(own, expert_units(own).value(), shared).value();
      for (std::size_t i = 0; i < 100; ++i) {
        const auto leases = other.acquire(std::vector<std::size_t>{(first + i * 3) % 16});
        if (!leases || !is_right((*leases)[0])) return false;
      }
      return true;
    }));
  const ResidentSet set = cold_set(shared);
  for (const auto& child : children) child->go();
  for (const auto& child : children) CHECK(child->status() == 0);
  CHECK(set.stats().leased_units == 0);
  CHECK(set.stats().hits + set.stats().misses == 400);
  CHECK(set.stats().slot_bytes == 3 * slot_bytes);
}

TEST_CASE_FIXTURE(SharedExperts, "Who shares has to mean the same") {
  const ResidentSet set = cold_set(shared);
  std::vector<Unit> units = expert_units(checkpoint).value();
  const auto refusal = [&](const ResidentOptions& options) {
    return ResidentSet::of(checkpoint, units, options);
  };
  ResidentOptions more = shared;
  more.budget_bytes = 4 * slot_bytes;
  CHECK_FAILS(refusal(more), ErrorCode::invalid_argument,
              "the set that is shared as \"team\" has a budget of 122880 bytes, not of 163840");
  ResidentOptions other = shared;
  other.policy = eviction_policy("sieve");
  if (other.policy) CHECK_FAILS(refusal(other), ErrorCode::invalid_argument, "has another policy");
  units.pop_back();
  CHECK_FAILS(refusal(shared), ErrorCode::invalid_argument, "has other units");
  ResidentOptions named = shared;
  named.share = "a.b";
  CHECK_FAILS(refusal(named), ErrorCode::invalid_argument,
              "share is \"a.b\", expected up to 100 letters");
}

namespace {

// A table in memory that a child shares.
struct Table {
  SlotPlan plan{{4096, 4096, 8192}, 12288};
  std::span<std::byte> memory{
      static_cast<std::byte*>(::mmap(nullptr, ResidentTable::bytes_for(plan),
                                     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
      ResidentTable::bytes_for(plan)};
  std::shared_ptr<const EvictionPolicy> policy = eviction_policy("lru");
  mmap::SlotMemory slots = mmap::SlotMemory::of_process(plan.memory_bytes()).value();
  ResidentTable table{memory, plan, *policy, slots};
  unsigned member = 0;

  Table() {
    REQUIRE_OK(table.begin(os::SharedMutex::Users::processes, 12288));
    member = table.join({});
  }
  ~Table() { ::munmap(memory.data(), memory.size()); }
};

}  // namespace

TEST_CASE_FIXTURE(Table, "A table whose owner died with its lock is made whole") {
  const std::array<std::uint32_t, 2> units{0, 2};
  {
    const ResidentTable::Lock lock(table);
    REQUIRE(table.reserve(units, member));
    table.finish(0, true);
    table.finish(2, true);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    new ResidentTable::Lock(table);
    table.pin(0, member);
    table.pin(0, 5);
    ::_exit(0);
  }
  CHECK(status_of(child) == 0);
  const ResidentTable::Lock lock(table);
  CHECK(table.used_bytes() == 12288);
  CHECK(table.state(0) == UnitState::resident);
  CHECK(table.count().leased == 1);
  table.leave(5);
  table.leave(member);
  CHECK(table.count().leased == 0);
}

TEST_CASE_FIXTURE(Table, "What a member was reading is absent once it has left") {
  const std::array<std::uint32_t, 1> units{2};
  const ResidentTable::Lock lock(table);
  const unsigned other = table.join({});
  REQUIRE(table.reserve(units, other));
  CHECK(table.state(2) == UnitState::being_read);
  CHECK(table.used_bytes() == 8192);
  table.leave(other);
  CHECK(table.state(2) == UnitState::absent);
  CHECK(table.used_bytes() == 0);
  CHECK_FALSE(table.is_member(other));
}

TEST_CASE_FIXTURE(Table, "A lower budget takes what nobody has") {
  const std::array<std::uint32_t, 2> units{0, 2};
  const ResidentTable::Lock lock(table);
  REQUIRE(table.reserve(units, member));
  table.finish(0, true);
  table.finish(2, true);
  table.pin(2, member);
  table.set_budget(4096);
  CHECK(table.state(0) == UnitState::absent);
  CHECK(table.state(2) == UnitState::resident);
  CHECK(table.used_bytes() == 8192);
  const std::array<std::uint32_t, 1> one{1};
  CHECK_FALSE(table.reserve(one, member));
  table.set_budget(12288);
  CHECK(table.reserve(one, member));
}

TEST_CASE_FIXTURE(Table, "Nothing is read ahead while a call of any member waits for room") {
  const ResidentTable::Lock lock(table);
  const unsigned other = table.join({});
  ++table.waiting_for_room(other);
  CHECK_FALSE(table.prefetch(1, member));
  CHECK(table.used_bytes() == 0);
  table.leave(other);
  CHECK(table.prefetch(1, member));
  CHECK(table.state(1) == UnitState::being_read);
}
