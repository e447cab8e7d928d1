// Units, files and processes that are not as one would like them to be.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "runtime/services/resident/resident_table.hpp"
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
