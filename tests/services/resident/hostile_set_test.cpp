// Units, files and processes that are not as one would like them to be.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "runtime/services/resident/memory_pressure.hpp"
#include "runtime/services/resident/resident_table.hpp"
#include "runtime/system/process/process_lock.hpp"
#include "tests/services/resident/experts_file.hpp"
#include "tests/support/variable.hpp"

using namespace weightmap;
using namespace weightmap::test;

TEST_CASE("A scalar is a part as any other tensor") {
  const TemporaryFolder folder;
  const Checkpoint checkpoint = opened(folder.write(
      "model.safetensors",
      framed(R"({"experts.0.w":{"dtype":"U8","shape":[5000],"data_offsets":[0,5000]},)"
             R"("experts.0.w_scale":{"dtype":"F32","shape":[],"data_offsets":[5000,5004]}})",
             filled('w', 0, 5000) + "four")));
  const Result<ResidentSet> set =
      ResidentSet::of(checkpoint, expert_units(checkpoint).value(), {.budget_bytes = 1 << 20});
  REQUIRE_OK(set);
  const std::vector<Lease> leases = leases_of(*set, {0});
  CHECK(text_of(leases[0].part(0)) == filled('w', 0, 5000));
  CHECK(text_of(leases[0].part(1)) == "four");
}

TEST_CASE("A tensor without elements is a part of no bytes") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.write(
      "model.safetensors",
      safetensors(
          {{"experts.0.a", ""}, {"experts.0.w", filled('w', 0, 5000)}, {"experts.0.z", ""}}));
  const Checkpoint checkpoint = opened(path);
  evict_file(path);
  const Result<ResidentSet> set = ResidentSet::of(
      checkpoint,
      {{"e", {{"experts.0.w", {}, false}, {"experts.0.a", {}, true}, {"experts.0.z", {}, false}}},
       {"none", {{"experts.0.z", {}, false}}}},
      {.budget_bytes = 8192});
  REQUIRE_OK(set);
  const std::vector<Lease> leases = leases_of(*set, {0, 1});
  CHECK(text_of(leases[0].part(0)) == filled('w', 0, 5000));
  CHECK(leases[0].part(1).empty());
  CHECK(leases[0].part(2).empty());
  CHECK(leases[1].part(0).empty());
}

namespace {

std::filesystem::path one_tensor(const TemporaryFolder& folder, const std::string& name,
                                 const std::string& shape, const std::string& bytes) {
  return folder.write("model.safetensors",
                      framed("{\"" + name + R"(":{"dtype":"U8","shape":[)" + shape +
                                 R"(],"data_offsets":[0,)" + std::to_string(bytes.size()) + "]}}",
                             bytes));
}

}  // namespace

TEST_CASE("A number of experts that no model has is refused") {
  const TemporaryFolder folder;
  const Checkpoint checkpoint =
      opened(one_tensor(folder, "h.0.experts.gate", "1000000000000,0", ""));
  CHECK_FAILS(expert_units(checkpoint), ErrorCode::limit_exceeded, "h.0.experts.gate");
}

TEST_CASE("A name of many words is read once") {
  const TemporaryFolder folder;
  std::string name;
  while (name.size() < 4'000'000) name += "experts.x.";
  const Checkpoint checkpoint = opened(one_tensor(folder, name + "w", "1", "w"));
  CHECK_FAILS(expert_units(checkpoint), ErrorCode::not_found, "is one of experts by its name");
}

TEST_CASE_FIXTURE(Experts, "The longest wait is a wait") {
  const ResidentSet set = cold_set(
      {.budget_bytes = 2 * slot_bytes, .wait_ms = std::numeric_limits<std::uint64_t>::max()});
  std::vector<Lease> held = leases_of(set, {0, 1});
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    held.clear();
  });
  const Result<std::vector<Lease>> leases = set.acquire(std::vector<std::size_t>{2});
  other.join();
  REQUIRE_OK(leases);
  CHECK(is_right(leases->front()));
}

TEST_CASE("A call that needs no room gets it whatever the budget is") {
  const SlotPlan plan{{4096, 4096}, 8192};
  const std::shared_ptr<const EvictionPolicy> policy = eviction_policy("lru");
  const mmap::SlotMemory slots = mmap::SlotMemory::of_process(plan.memory_bytes()).value();
  mmap::Reservation memory(ResidentTable::bytes_for(plan), 4096, mmap::Reservation::Access::write);
  ResidentTable table(memory.bytes(), plan, *policy, slots);
  REQUIRE_OK(table.begin(os::SharedMutex::Users::process, 8192));
  const unsigned member = table.join({});
  const ResidentTable::Lock lock(table);
  const std::vector<std::uint32_t> both{0, 1};
  REQUIRE(table.reserve(both, member));
  table.set_budget(4096);
  CHECK(table.reserve({}, member));
}

TEST_CASE_FIXTURE(Experts, "A mapped unit is refused once its file was written to") {
  const ResidentSet set = cold_set({.budget_bytes = 2 * slot_bytes});
  read_file(path);
  CHECK(leases_of(set, {0})[0].is_mapped());
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(100'000) << "other";
  CHECK_FAILS(set.acquire(std::vector<std::size_t>{0}), ErrorCode::io, "layers.0.experts.0");
}

TEST_CASE("A profile has the units of any names") {
  const TemporaryFolder folder;
  const Checkpoint checkpoint =
      opened(folder.write("model.safetensors", safetensors({{R"(a\nb)", "1"}, {"c", "2"}})));
  const std::vector<Unit> units{{"a\nb", {{"a\nb", {}}}}, {"c", {{"c", {}}}}};
  const ResidentSet set = ResidentSet::of(checkpoint, units, {.budget_bytes = 1 << 20}).value();
  leases_of(set, {0, 1});
  const std::string profile = folder.path() / "profile";
  REQUIRE_OK(set.save_profile(profile));
  CHECK(read_file(profile) == "# Units by their last use, with their uses\n1 a\\x0Ab\n1 c\n");
  CHECK(set.load_profile(profile).has_value());
}

TEST_CASE("Processes that wait for memory leave what one call needs") {
  CHECK(MemoryPressure::budget_within(160'000, 0, 6400, 0) == 156'000);
  CHECK(MemoryPressure::budget_within(160'000, 50, 6400, 0) == 6300);
  CHECK(MemoryPressure::budget_within(160'000, 50, 6400, 8192) == 8192);
  CHECK(MemoryPressure::budget_within(160'000, 50, 0, 4096) == 4096);
  CHECK(MemoryPressure::budget_within(3200, 50, 0, 4096) == 3000);
}

TEST_CASE("Who follows memory goes on when there is none") {
  std::atomic<int> looks{0};
  MemoryPressure pressure([&] {
    ++looks;
    throw std::bad_alloc();
  });
  REQUIRE_OK(pressure.start());
  while (looks < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

namespace {

struct HostileShared : Experts {
  TemporaryFolder runtime;
  Variable variable{"WEIGHTMAP_RUNTIME_DIR", runtime.path().string()};
  ResidentOptions shared{.budget_bytes = 3 * slot_bytes, .share = "team"};
};

}  // namespace

TEST_CASE_FIXTURE(HostileShared, "Leases outlive the lock files of their process") {
  const WaitingChild child([&] {
    const Checkpoint own = Checkpoint::open(path).value();
    ResidentOptions options = shared;
    options.wait_ms = 500;
    const ResidentSet other = ResidentSet::of(own, expert_units(own).value(), options).value();
    for (const auto& entry : std::filesystem::directory_iterator(runtime.path()))
      std::filesystem::remove(entry.path());
    return !other.acquire(std::vector<std::size_t>{3, 4, 5});
  });
  const ResidentSet set = cold_set(shared);
  const std::vector<Lease> held = leases_of(set, {0, 1, 2});
  child.go();
  CHECK(child.status() == 0);
  for (const Lease& lease : held) CHECK(is_right(lease));
}

TEST_CASE_FIXTURE(HostileShared, "A process that ends while another one joins is no obstacle") {
  std::array<int, 2> ready{};
  REQUIRE(::pipe(ready.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {  // has its lock still, and its memory no more
    const os::RuntimeDirectory directory = os::RuntimeDirectory::open().value();
    const auto lock = os::ProcessLock::try_lock(
        directory, "resident-team." + std::to_string(::getpid()) + ".999");
    static_cast<void>(::write(ready[1], lock && *lock ? "y" : "n", 1));
    ::usleep(30'000);
    ::_exit(0);
  }
  char answer = '?';
  REQUIRE(::read(ready[0], &answer, 1) == 1);
  REQUIRE(answer == 'y');
  const ResidentSet set = cold_set(shared);
  CHECK(set.stats().processes == 1);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

namespace {

constexpr const char* model_of_second_life = "WEIGHTMAP_TEST_SECOND_LIFE";

}  // namespace

TEST_CASE("A program after exec() has no leases of the one before") {
  const char* const model = std::getenv(model_of_second_life);
  const ResidentOptions shared{.budget_bytes = 3 * slot_bytes, .share = "team", .wait_ms = 1000};
  if (model != nullptr) {
    const Checkpoint checkpoint = opened(model);
    const ResidentSet set =
        ResidentSet::of(checkpoint, expert_units(checkpoint).value(), shared).value();
    CHECK(set.stats().processes == 2);
    for (const Lease& lease : leases_of(set, {3, 4, 5})) CHECK(is_right(lease));
    return;
  }
  const HostileShared experts;
  const WaitingChild child([&] {
    ::close_range(3, ~0u, 0);  // so that descriptors have the same numbers both times
    const Checkpoint own = Checkpoint::open(experts.path).value();
    const ResidentSet mine = ResidentSet::of(own, expert_units(own).value(), shared).value();
    const auto held = mine.acquire(std::vector<std::size_t>{0, 1, 2});
    ::setenv(model_of_second_life, experts.path.c_str(), 1);
    if (held) ::execl("/proc/self/exe", "test", "-tc=A program after exec()*", nullptr);
    return false;
  });
  const ResidentSet set = experts.cold_set(shared);
  child.go();
  CHECK(child.status() == 0);
}

TEST_CASE_FIXTURE(HostileShared, "A death is noticed without anybody waiting") {
  std::array<int, 2> ready{};
  REQUIRE(::pipe(ready.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const Checkpoint own = Checkpoint::open(path).value();
    const ResidentSet other = ResidentSet::of(own, expert_units(own).value(), shared).value();
    static_cast<void>(::write(ready[1], "y", 1));
    ::pause();
    ::_exit(1);
  }
  char answer = '?';
  REQUIRE(::read(ready[0], &answer, 1) == 1);
  const ResidentSet set = cold_set(shared);
  CHECK(set.stats().processes == 2);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(set.stats().processes == 1);
  ::close(ready[0]);
  ::close(ready[1]);
}
