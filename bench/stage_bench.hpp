// The groups of benchmarks that stage_bench runs: each stage of the library alone.
#pragma once

#include <benchmark/benchmark.h>

#include <string>

#include "weightmap/error.hpp"
#include "weightmap/result.hpp"

namespace weightmap::bench {

// Parsing and placing, for tensors_10.pt, tensors_1000.pt and tensors_100000.pt in the folder
// `files`.
void add_open_stages(const std::string& files);
// What is done to a file that is cached as a whole, for gibibyte.pt in the folder `files`.
void add_page_stages(const std::string& files);
// Arithmetic that needs no file: planning a warm-up, checksums.
void add_arithmetic_stages();

// Gives the benchmark up: nothing of it is reported but the error.
inline void skip(benchmark::State& state, const Error& error) {
  state.SkipWithError(to_string(error).c_str());
}

// Measures `once`, which answers Result<void>. The first time is not counted, so that all memory
// has been touched before: a stage alone, not what it costs a fresh process.
template <class Function>
void repeat(benchmark::State& state, Function once) {
  if (const Result<void> done = once(); !done) return skip(state, done.error());
  for (auto _ : state)
    if (const Result<void> done = once(); !done) return skip(state, done.error());
}

template <class T>
tl::unexpected<Error> error_of(const Result<T>& result) {
  return tl::unexpected<Error>(result.error());
}

// Registers `run(state, prepared)`, where `prepare(state)` makes a Result<std::unique_ptr<T>>
// outside of the measured time.
template <class Prepare, class T>
benchmark::internal::Benchmark* add_stage(const char* name, Prepare prepare,
                                          void (*run)(benchmark::State&, T&)) {
  return benchmark::RegisterBenchmark(name, [prepare, run](benchmark::State& state) {
    const auto prepared = prepare(state);
    if (!prepared) return skip(state, prepared.error());
    run(state, **prepared);
  });
}

}  // namespace weightmap::bench
