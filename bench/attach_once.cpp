// Opens a checkpoint once, in this fresh process, with or without a shared catalog, finds a tensor
// in it, and prints what that cost as one JSON object.
//
//   attach_once FILE TENSOR open|attach
//
// With `attach` the first process publishes the catalog; "catalog" tells which of the two it was.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "bench/cold/trace_marks.hpp"
#include "bench/proc_value.hpp"
#include "weightmap/checkpoint.hpp"

namespace {

struct Counters {
  long long anonymous_kib = proc_value("/proc/self/smaps_rollup", "Anonymous:");
  rusage usage{};
  Counters() { getrusage(RUSAGE_SELF, &usage); }
};

}  // namespace

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  if (argc != 4) {
    std::fprintf(stderr, "usage: attach_once FILE TENSOR open|attach\n");
    return 2;
  }
  const std::string_view how = argv[3];
  weightmap::OpenOptions options;
  options.shared_catalog = how == "attach";
  const Counters before;
  weightmap::cli::bench::begin_counted_calls();
  const Clock::time_point start = Clock::now();
  const auto checkpoint = weightmap::Checkpoint::open(argv[1], options);
  const Clock::time_point opened = Clock::now();
  const bool found = checkpoint && checkpoint->find(argv[2]).has_value();
  const Clock::time_point end = Clock::now();
  weightmap::cli::bench::end_counted_calls();
  const Counters after;
  if (!found) {
    std::fprintf(stderr, "attach_once: %s\n",
                 checkpoint ? "there is no such tensor" : to_string(checkpoint.error()).c_str());
    return 1;
  }
  const auto microseconds = [](std::chrono::nanoseconds time) {
    return static_cast<double>(time.count()) / 1000.0;
  };
  std::printf(
      "{\"catalog\": \"%s\", \"total_us\": %.1f, \"open_us\": %.1f, \"find_us\": %.1f, "
      "\"minor_faults\": %ld, \"major_faults\": %ld, \"anonymous_kib\": %lld, \"tensors\": %zu}\n",
      std::string(to_string(checkpoint->info().catalog)).c_str(), microseconds(end - start),
      microseconds(opened - start), microseconds(end - opened),
      after.usage.ru_minflt - before.usage.ru_minflt,
      after.usage.ru_majflt - before.usage.ru_majflt, after.anonymous_kib - before.anonymous_kib,
      checkpoint->tensors().size());
  return 0;
}
