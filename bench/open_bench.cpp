// Measures opening and lookups inside one process (Google Benchmark).
//
//   open_bench --files=DIR [Google Benchmark options]
//
// DIR contains tensors_10.pt, tensors_1000.pt, ... from scripts/bench. open_once measures the cost
// of an open in a fresh process.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "bench/count_allocations.hpp"
#include "weightmap/checkpoint.hpp"

namespace {

std::string directory;

std::string file_of(std::int64_t tensors) {
  return directory + "/tensors_" + std::to_string(tensors) + ".pt";
}

void open(benchmark::State& state) {
  const std::string path = file_of(state.range(0));
  for (auto _ : state) {
    const auto checkpoint = weightmap::Checkpoint::open(path);
    if (!checkpoint) {
      state.SkipWithError(to_string(checkpoint.error()).c_str());
      return;
    }
    benchmark::DoNotOptimize(checkpoint->tensors().size());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

// Names in random order, in text owned by the caller: a lookup hashes it, probes and compares.
// Absent names differ from present ones in their last letter.
void look_up(benchmark::State& state, bool present) {
  const auto checkpoint = weightmap::Checkpoint::open(file_of(state.range(0)));
  if (!checkpoint) {
    state.SkipWithError(to_string(checkpoint.error()).c_str());
    return;
  }
  std::vector<std::string_view> names;
  for (const weightmap::NamedTensor& tensor : checkpoint->tensors()) names.push_back(tensor.name);
  std::shuffle(names.begin(), names.end(), std::mt19937(1));
  // One text in the order of the lookups, so that reading the names causes no cache misses.
  std::string text;
  for (std::string_view name : names) {
    text += name;
    if (!present) text.back() = '?';
  }
  std::size_t start = 0;
  for (std::string_view& name : names) {
    name = std::string_view(text).substr(start, name.size());
    start += name.size();
  }
  if (checkpoint->find(names[0]).has_value() != present)
    return state.SkipWithError("the lookup did not answer as expected");
  std::size_t next = 0;
  const std::uint64_t before = allocation_count();
  for (auto _ : state) {
    benchmark::DoNotOptimize(checkpoint->find(names[next]));
    if (++next == names.size()) next = 0;
  }
  state.counters["allocations"] = static_cast<double>(allocation_count() - before);
}

void find(benchmark::State& state) { look_up(state, true); }
void find_absent(benchmark::State& state) { look_up(state, false); }

}  // namespace

BENCHMARK(open)->Arg(10)->Arg(1000)->Arg(10000)->Arg(100000)->Unit(benchmark::kMicrosecond);
BENCHMARK(find)->Arg(10)->Arg(1000)->Arg(10000)->Arg(100000);
BENCHMARK(find_absent)->Arg(10)->Arg(1000)->Arg(10000)->Arg(100000);

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  constexpr std::string_view option = "--files=";
  if (argc != 2 || !std::string_view(argv[1]).starts_with(option)) {
    std::fprintf(stderr, "usage: open_bench --files=DIR [Google Benchmark options]\n");
    return 2;
  }
  directory = std::string_view(argv[1]).substr(option.size());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
