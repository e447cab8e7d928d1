// Units of a checkpoint that are resident within a budget.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/services/resident/experts_file.hpp"
#include "tests/services/resident/set_state.hpp"
#include "tests/support/gguf_builder.hpp"

using namespace weightmap;
using namespace weightmap::test;

TEST_CASE_FIXTURE(Experts, "The experts of fused tensors are units with a slice of each") {
  const std::vector<Unit> units = expert_units(checkpoint).value();
  REQUIRE(units.size() == expert_count);
  CHECK(units[7].name == "layers.0.experts.7");
  REQUIRE(units[7].parts.size() == 2);
  CHECK(units[7].parts[0].tensor == "layers.0.experts.down");
  CHECK(units[7].parts[1].tensor == "layers.0.experts.gate");
  CHECK(units[7].parts[1].index == 7);
}

TEST_CASE("Tensors of an expert each are a unit by their name") {
  const TemporaryFolder folder;
  const Checkpoint checkpoint =
      opened(folder.write("model.safetensors", safetensors({{"h.0.experts.10.w2.weight", "a"},
                                                            {"h.0.experts.10.w1.weight", "b"},
                                                            {"h.0.shared_experts.w1.weight", "c"},
                                                            {"h.0.experts.9.w1.weight", "d"},
                                                            {"h.1.experts.9.w1.weight", "e"}})));
  const std::vector<Unit> units = expert_units(checkpoint, "h.0.*").value();
  REQUIRE(units.size() == 2);
  CHECK(units[0].name == "h.0.experts.10");
  CHECK(units[0].parts[0].tensor == "h.0.experts.10.w1.weight");
  CHECK(units[0].parts[1].tensor == "h.0.experts.10.w2.weight");
  CHECK_FALSE(units[0].parts[0].index);
  CHECK(units[1].name == "h.0.experts.9");
  CHECK_FAILS(expert_units(checkpoint, "h.2.*"), ErrorCode::not_found, "\"h.2.*\"");
}

TEST_CASE_FIXTURE(Experts, "A unit that is nowhere is read into a slot, past the page cache") {
  const ResidentSet set = cold_set({.budget_bytes = 4 * slot_bytes});
  const std::vector<Lease> leases = leases_of(set, {3, 15, 3});
  REQUIRE(leases.size() == 3);
  CHECK(leases[0].unit() == 3);
  CHECK(leases[1].unit() == 15);
  for (const Lease& lease : leases) {
    CHECK_FALSE(lease.is_mapped());
    CHECK(is_right(lease));
    for (std::size_t part = 0; part < 2; ++part)
      CHECK(reinterpret_cast<std::uintptr_t>(lease.part(part).data()) % unit_alignment == 0);
  }
  const ResidentStats stats = set.stats();
  CHECK(stats.misses == 2);
  CHECK(stats.hits == 0);
  CHECK(stats.missed_bytes == 2 * (gate_bytes + down_bytes));
  CHECK(stats.resident_units == 2);
  CHECK(stats.slot_bytes == 2 * slot_bytes);
  CHECK(stats.leased_units == 2);
}

TEST_CASE_FIXTURE(Experts, "What is in the page cache is used where it is") {
  const ResidentSet set =
      ResidentSet::of(checkpoint, expert_units(checkpoint).value(), {.budget_bytes = slot_bytes})
          .value();
  std::string all = read_file(path);  // caches it
  const std::vector<Lease> leases = leases_of(set, {1, 2, 9});
  for (const Lease& lease : leases) {
    CHECK(lease.is_mapped());
    CHECK(is_right(lease));
  }
  CHECK(set.stats().slot_bytes == 0);
  CHECK(set.stats().hits == 3);
}

TEST_CASE_FIXTURE(Experts, "If all fits, the page cache is where units are brought") {
  const ResidentSet set = cold_set({.budget_bytes = expert_count * slot_bytes});
  const std::vector<Lease> leases = leases_of(set, {5, 6});
  for (const Lease& lease : leases) {
    CHECK(lease.is_mapped());
    CHECK(is_right(lease));
  }
  CHECK(set.stats().misses == 2);
}

TEST_CASE_FIXTURE(Experts, "What was not used for the longest time makes room") {
  const ResidentSet set = cold_set({.budget_bytes = 3 * slot_bytes});
  for (const std::size_t unit : std::vector<std::size_t>{0, 1, 2, 0, 3, 1})
    CHECK(is_right(leases_of(set, {unit})[0]));
  // 3 took the place of 1, and 1 that of 2.
  CHECK(set.stats().misses == 5);
  CHECK(set.stats().hits == 1);
  CHECK(set.stats().evicted_units == 2);
  CHECK(set.stats().resident_units == 3);
  const std::vector<UnitHistory> history = set.history();
  CHECK(history[0].uses == 2);
  CHECK(history[1].entered == 6);
  CHECK(history[1].last_used == 6);
  CHECK(history[4].last_used == 0);
}

TEST_CASE_FIXTURE(Experts, "A slot that is leased is not used again") {
  const ResidentSet set = cold_set({.budget_bytes = 3 * slot_bytes, .wait_ms = 50});
  std::vector<Lease> held = leases_of(set, {0});
  for (const std::size_t unit : std::vector<std::size_t>{1, 2, 3, 4}) leases_of(set, {unit});
  CHECK(is_right(held[0]));
  CHECK(set.acquire(std::vector<std::size_t>{5, 6, 7}).error().code == ErrorCode::limit_exceeded);
  CHECK_FAILS(set.acquire(std::vector<std::size_t>{5, 6, 7}), ErrorCode::limit_exceeded,
              "leases of other calls");
  CHECK(is_right(held[0]));
  held.clear();
  for (const Lease& lease : leases_of(set, {5, 6, 7})) CHECK(is_right(lease));
}

TEST_CASE_FIXTURE(Experts, "A call that needs more than the budget fails at once") {
  const ResidentSet set = cold_set({.budget_bytes = 2 * slot_bytes});
  CHECK_FAILS(set.acquire(std::vector<std::size_t>{0, 1, 2}), ErrorCode::limit_exceeded,
              "unit \"layers.0.experts.2\": the units of one call need 122880 bytes with it, above "
              "the budget of 81920");
  CHECK(set.stats().leased_units == 0);
}

TEST_CASE_FIXTURE(Experts, "A call waits until leases of another thread end") {
  const ResidentSet set = cold_set({.budget_bytes = 2 * slot_bytes});
  std::vector<Lease> held = leases_of(set, {0, 1});
  std::atomic<bool> is_there{false};
  std::thread other([&] {
    CHECK(is_right(leases_of(set, {2})[0]));
    is_there = true;
  });
  while (set.history()[2].uses == 0 && !is_there) {
    std::this_thread::yield();
    held.clear();
  }
  other.join();
  CHECK(is_there);
}

TEST_CASE_FIXTURE(Experts, "Threads that want the same few slots all get what they want") {
  const ResidentSet set = cold_set({.budget_bytes = 5 * slot_bytes});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::size_t first = 0; first < 4; ++first)
    threads.emplace_back([&, first] {
      for (std::size_t i = 0; i < 100; ++i) {
        const std::vector<std::size_t> units{(first + i * 3) % 16, (first * 5 + i) % 16};
        set.prefetch(std::vector<std::size_t>{(first + i * 3 + 3) % 16, (first + i) % 16});
        Result<std::vector<Lease>> leases = set.acquire(units);
        for (std::size_t at = 0; at < units.size(); ++at)
          if (!leases || text_of((*leases)[at].part(1)) != filled('g', units[at], gate_bytes))
            ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(set.stats().leased_units == 0);
  CHECK(set.stats().slot_bytes <= 5 * slot_bytes);
}

TEST_CASE_FIXTURE(Experts, "What is read ahead is there, and counts as a hit") {
  const ResidentSet set = cold_set({.budget_bytes = 4 * slot_bytes});
  set.prefetch(std::vector<std::size_t>{8, 9});
  while (set.stats().resident_units < 2) std::this_thread::yield();
  for (const Lease& lease : leases_of(set, {8, 9})) CHECK(is_right(lease));
  CHECK(set.stats().misses == 0);
  CHECK(set.stats().hits == 2);
  CHECK(set.stats().prefetched_units == 2);
}

TEST_CASE_FIXTURE(Experts, "What was read ahead and is not used makes room at once") {
  const ResidentSet set = cold_set({.budget_bytes = 2 * slot_bytes, .wait_ms = 0});
  set.prefetch(std::vector<std::size_t>{8, 9});
  while (set.stats().resident_units < 2) std::this_thread::yield();
  for (const Lease& lease : leases_of(set, {1, 2})) CHECK(is_right(lease));
  CHECK(set.stats().evicted_units == 2);
}

TEST_CASE_FIXTURE(Experts, "What is in no slot and in the page cache is counted") {
  const std::vector<Unit> all = expert_units(checkpoint).value();
  evict_file(path);
  const ResidentSet set =
      ResidentSet::of(checkpoint, {all[7], all[11], all[12]}, {.budget_bytes = slot_bytes}).value();
  CHECK(set.cached_bytes().value() == 0);
  CHECK_FALSE(leases_of(set, {1})[0].is_mapped());
  CHECK(set.cached_bytes().value() == 0);
  read_file(path);
  CHECK(set.cached_bytes().value() == 2 * (gate_bytes + down_bytes));
}

TEST_CASE_FIXTURE(Experts, "A profile brings back what was used last") {
  const std::string profile = folder.path() / "profile";
  {
    const ResidentSet set = cold_set({.budget_bytes = 2 * slot_bytes});
    for (const std::size_t unit : std::vector<std::size_t>{4, 11, 12}) leases_of(set, {unit});
    REQUIRE_OK(set.save_profile(profile));
  }
  CHECK(read_file(profile) ==
        "# Units by their last use, with their uses\n1 layers.0.experts.4\n1 "
        "layers.0.experts.11\n1 layers.0.experts.12\n");
  const ResidentSet set = cold_set({.budget_bytes = 2 * slot_bytes});
  REQUIRE_OK(set.load_profile(profile));
  while (set.stats().resident_units < 2) std::this_thread::yield();
  leases_of(set, {11, 12});
  CHECK(set.stats().misses == 0);
}

TEST_CASE_FIXTURE(Experts, "A line that is none of a profile is refused") {
  const ResidentSet set = cold_set({.budget_bytes = 2 * slot_bytes});
  const std::string wrong = folder.write("wrong", "# x\n1 a\nmany b\n");
  CHECK_FAILS(set.load_profile(wrong), ErrorCode::corrupt, "a line of the profile is \"many b\"");
  CHECK(set.load_profile(wrong).error().file_offset == 8);
  CHECK_FAILS(set.load_profile(folder.path() / "none"), ErrorCode::io, "No such file");
}

TEST_CASE("Joined parts follow one another in memory, though not in the file") {
  const TemporaryFolder folder;
  const std::filesystem::path path =
      folder.write("model.safetensors", safetensors({{"up", filled('u', 0, 5000)},
                                                     {"down", filled('d', 0, 3000)},
                                                     {"gate", filled('g', 0, 7000)}}));
  const Checkpoint checkpoint = opened(path);
  const ResidentSet set =
      ResidentSet::of(checkpoint,
                      {{"e", {{"gate", {}, false}, {"up", {}, true}, {"down", {}, false}}}},
                      {.budget_bytes = 1 << 20})
          .value();
  const std::vector<Lease> leases = leases_of(set, {0});
  CHECK_FALSE(leases[0].is_mapped());
  CHECK(text_of(leases[0].part(0)) == filled('g', 0, 7000));
  CHECK(text_of(leases[0].part(1)) == filled('u', 0, 5000));
  CHECK(text_of(leases[0].part(2)) == filled('d', 0, 3000));
  CHECK(leases[0].part(1).data() == leases[0].part(0).data() + 7000);
  CHECK(set.unit_bytes(0) == 15000);
}

TEST_CASE("Units of different sizes share the budget") {
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, std::string>> tensors;
  for (int i = 0; i < 8; ++i)
    tensors.emplace_back("experts." + std::to_string(i) + ".w",
                         filled('w', static_cast<std::size_t>(i), i % 2 == 0 ? 4000 : 20000));
  const std::filesystem::path path = folder.write("model.safetensors", safetensors(tensors));
  const Checkpoint checkpoint = opened(path);
  evict_file(path);
  const ResidentSet set =
      ResidentSet::of(checkpoint, expert_units(checkpoint).value(), {.budget_bytes = 40960})
          .value();
  for (int round = 0; round < 3; ++round)
    for (std::size_t unit = 0; unit < 8; ++unit) {
      const std::vector<Lease> leases = leases_of(set, {unit});
      CHECK(text_of(leases[0].part(0)) == tensors[unit].second);
      CHECK(set.stats().slot_bytes <= 40960);
    }
}

TEST_CASE_FIXTURE(Experts, "A file that was written to since the open gives no bytes") {
  const ResidentSet set = cold_set({.budget_bytes = 2 * slot_bytes});
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(100'000) << "other";
  CHECK_FAILS(set.acquire(std::vector<std::size_t>{0}), ErrorCode::io, "layers.0.experts.0");
  CHECK(set.stats().slot_bytes == 0);
  CHECK(set.stats().leased_units == 0);
}

TEST_CASE_FIXTURE(Experts, "A truncated file is an error that names unit and file") {
  const ResidentSet set = cold_set({.budget_bytes = 2 * slot_bytes});
  std::filesystem::resize_file(path, 200'000);
  const Result<std::vector<Lease>> leases = set.acquire(std::vector<std::size_t>{15});
  CHECK_FAILS_IN(leases, ErrorCode::io, "unit \"layers.0.experts.15\"", path.string());
}

TEST_CASE_FIXTURE(Experts, "What is wrong with units is said") {
  const auto refusal = [&](std::vector<Unit> units, std::uint64_t budget = 1 << 20) {
    return ResidentSet::of(checkpoint, std::move(units), {.budget_bytes = budget});
  };
  const std::string gate = "layers.0.experts.gate";
  CHECK_FAILS(refusal({}), ErrorCode::invalid_argument, "there are no units");
  CHECK_FAILS(refusal({{"a", {}}}), ErrorCode::invalid_argument, "unit \"a\": has no parts");
  CHECK_FAILS(refusal({{"a", {{gate, 1, true}}}}), ErrorCode::invalid_argument,
              "its first part is joined to none");
  CHECK_FAILS(refusal({{"a", {{gate, 1}}}, {"a", {{gate, 2}}}}), ErrorCode::invalid_argument,
              "two units are called \"a\"");
  CHECK_FAILS(refusal({{"a", {{gate, 16}}}}), ErrorCode::invalid_argument,
              "there is no slice 16 of \"layers.0.experts.gate\", which has 16");
  CHECK_FAILS(refusal({{"a", {{"none", 1}}}}), ErrorCode::not_found, "none");
  CHECK_FAILS(refusal({{"a", {{gate, 1}}}}, 8192), ErrorCode::limit_exceeded,
              "unit \"a\" needs 32768 bytes, above the budget of 8192");
  const ResidentSet set = refusal({{"a", {{gate, 1}}}}).value();
  CHECK_FAILS(set.acquire(std::vector<std::size_t>{1}), ErrorCode::invalid_argument,
              "there is no unit 1 of 1");
  CHECK(set.find("a") == 0);
  CHECK_FALSE(set.find("b"));
}

TEST_CASE("The experts of a GGUF file are slices of quantized tensors") {
  const TemporaryFolder folder;
  // Q8_0: 34 bytes for 32 elements; three experts of two rows of 32.
  std::string gate, down;
  for (std::size_t expert = 0; expert < 3; ++expert) {
    gate += filled('g', expert, 68);
    down += filled('d', expert, 68);
  }
  GgufBuilder gguf;
  gguf.tensor("blk.0.ffn_gate_exps.weight", {32, 2, 3}, 8, gate)
      .tensor("blk.0.ffn_down_exps.weight", {32, 2, 3}, 8, down)
      .tensor("blk.0.ffn_gate_shexp.weight", {32, 2}, 8, filled('s', 0, 68));
  const Checkpoint checkpoint = opened(folder.write("model.gguf", gguf.file()));
  const std::vector<Unit> units = expert_units(checkpoint).value();
  REQUIRE(units.size() == 3);
  CHECK(units[2].name == "blk.0.exps.2");
  const ResidentSet set = ResidentSet::of(checkpoint, units, {.budget_bytes = 1 << 20}).value();
  const std::vector<Lease> leases = leases_of(set, {2, 1});
  CHECK(text_of(leases[0].part(0)) == filled('d', 2, 68));
  CHECK(text_of(leases[0].part(1)) == filled('g', 2, 68));
  CHECK(text_of(leases[1].part(1)) == filled('g', 1, 68));
}

TEST_CASE("Tensors of one layer for different numbers of experts are refused") {
  const TemporaryFolder folder;
  GgufBuilder gguf;
  gguf.tensor("blk.4.ffn_gate_exps.weight", {8, 1, 3}, 24, std::string(24, 'g'))
      .tensor("blk.4.ffn_up_exps.weight", {8, 1, 2}, 24, std::string(16, 'u'));
  const Checkpoint checkpoint = opened(folder.write("model.gguf", gguf.file()));
  CHECK_FAILS(expert_units(checkpoint), ErrorCode::unsupported,
              "\"blk.4.exps.\" has tensors for 3 experts, and \"blk.4.ffn_up_exps.weight\" for 2");
}

TEST_CASE(
    "An expert with a tensor of its own and a slice is refused, and a pattern is the way out") {
  const TemporaryFolder folder;
  const Checkpoint checkpoint = opened(folder.write(
      "model.safetensors",
      framed(R"({"h.0.experts.1.w1":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
             R"("h.0.experts.gate":{"dtype":"U8","shape":[2,1],"data_offsets":[2,4]}})",
             "abcd")));
  CHECK_FAILS(expert_units(checkpoint), ErrorCode::unsupported,
              "\"h.0.experts.1\" has a tensor of its own, \"h.0.experts.1.w1\", and slice 1 of "
              "\"h.0.experts.gate\"; give a pattern that matches those of one kind");
  CHECK(expert_units(checkpoint, "*.experts.*.*").value().size() == 1);
  CHECK(expert_units(checkpoint, "*.experts.gate").value().size() == 2);
}

TEST_CASE("Units lie in any file of a set, and in archives of torch") {
  const TemporaryFolder folder;
  folder.write("a.safetensors", safetensors({{"experts.0.w", filled('w', 0, 5000)}}));
  folder.write("b.safetensors", safetensors({{"experts.1.w", filled('w', 1, 5000)}}));
  folder.write("model.safetensors.index.json",
               index_of({{"experts.0.w", "a.safetensors"}, {"experts.1.w", "b.safetensors"}}));
  const std::filesystem::path archive = folder.write(
      "model.pt",
      torch_zip({{"experts.0.w", filled('w', 0, 5000)}, {"experts.1.w", filled('w', 1, 5000)}}));
  for (const std::filesystem::path& path :
       {folder.path() / "model.safetensors.index.json", archive}) {
    INFO(path);
    const Checkpoint checkpoint = opened(path);
    const ResidentSet set =
        ResidentSet::of(checkpoint, expert_units(checkpoint).value(), {.budget_bytes = 8192})
            .value();
    for (const std::size_t unit : std::vector<std::size_t>{0, 1, 0})
      CHECK(text_of(leases_of(set, {unit})[0].part(0)) == filled('w', unit, 5000));
  }
}

TEST_CASE("The bytes of a checkpoint in memory are where units are") {
  const std::string file = fused_file();
  const Checkpoint checkpoint =
      Checkpoint::open_memory(std::as_bytes(std::span(file)), nullptr).value();
  const ResidentSet set =
      ResidentSet::of(checkpoint, expert_units(checkpoint).value(), {.budget_bytes = slot_bytes})
          .value();
  CHECK(set.cached_bytes().value() == expert_count * (gate_bytes + down_bytes));
  for (const Lease& lease : leases_of(set, {0, 5, 15})) {
    CHECK(lease.is_mapped());
    CHECK(is_right(lease));
  }
}

TEST_CASE_FIXTURE(Experts, "Without a budget there is what the machine can give") {
  const ResidentSet set = cold_set({});
  for (const Lease& lease : leases_of(set, {0, 5, 15})) CHECK(is_right(lease));
  CHECK(set.stats().budget_bytes > expert_count * slot_bytes);
}

TEST_CASE_FIXTURE(Experts, "Without a budget a set shrinks and grows with what others leave") {
  const TemporaryFolder machine;
  std::filesystem::create_directories(machine.path() / "proc/pressure");
  const auto set = set_state(checkpoint, {});
  set->memory = TableMemory::of({}, {}, set->plan, *set->policy, 4 * slot_bytes).value();
  const std::array<std::uint32_t, 4> units{0, 1, 2, 3};
  {
    const ResidentTable::Lock lock(set->table());
    REQUIRE(set->table().reserve(units, set->memory->member()));
    for (const std::uint32_t unit : units) set->table().finish(unit, true);
  }
  // Bytes of slots and the budget, where so many KiB can be had and some wait for memory.
  const auto look = [&](const std::string& available, const std::string& waiting) {
    machine.write("proc/meminfo", "MemAvailable: " + available + " kB\n");
    machine.write("proc/pressure/memory", "some avg10=" + waiting + " avg60=0.00\n");
    set->look_at_memory(machine.path());
    return std::pair(set->table().used_bytes() / slot_bytes, set->table().budget_bytes());
  };
  CHECK(look("160", "0.00") == std::pair<std::uint64_t, std::uint64_t>(4, 307'200));
  CHECK(look("0", "0.00") == std::pair<std::uint64_t, std::uint64_t>(3, 153'600));
  CHECK(look("160", "50.00") == std::pair<std::uint64_t, std::uint64_t>(2, 120'960));
  CHECK(look("160", "0.00") == std::pair<std::uint64_t, std::uint64_t>(2, 230'400));
}
