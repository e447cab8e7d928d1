// What the guard costs whoever reads: sums a mapped checkpoint word by word, once without and once
// with it, in turns. Nothing should be seen: the guard acts when a page cannot be had.
//
//   guard_reads CHECKPOINT [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "bench/cold/statistics.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::bench {
namespace {

std::uint64_t sum_of(std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    sum += word;
  }
  return sum;
}

struct Sample {
  double seconds;
  std::uint64_t sum;
};

Sample measure(const Checkpoint& checkpoint) {
  const auto began = std::chrono::steady_clock::now();
  const std::uint64_t sum = sum_of(checkpoint.mapping());
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), sum};
}

int run(const char* file, std::size_t rounds) {
  OpenOptions options;
  options.protection = Protection::map;
  const Result<Checkpoint> plain = Checkpoint::open(file, options);
  options.protection = Protection::guard;
  const Result<Checkpoint> guarded = Checkpoint::open(file, options);
  if (!plain || !guarded) {
    const Error& error = plain ? guarded.error() : plain.error();
    std::fprintf(stderr, "guard_reads: %s\n", to_string(error).c_str());
    return 1;
  }
  measure(*plain);  // maps the pages
  measure(*guarded);
  std::vector<double> without;
  std::vector<double> with;
  for (std::size_t round = 0; round < rounds; ++round) {
    const bool is_first = round % 2 == 0;
    const Sample first = measure(is_first ? *plain : *guarded);
    const Sample second = measure(is_first ? *guarded : *plain);
    if (first.sum != second.sum) return 1;
    without.push_back((is_first ? first : second).seconds);
    with.push_back((is_first ? second : first).seconds);
  }
  const auto ratio = cli::bench::compare(with, without);
  if (!ratio) return 1;
  const double plain_seconds = cli::bench::summarize(without).median;
  const auto bytes = static_cast<double>(plain->mapping().size());
  std::printf("%zu rounds over %.1f MiB: without %.3f ms (%.2f GB/s), with the guard %.3f ms\n",
              rounds, bytes / 1048576, plain_seconds * 1e3, bytes / plain_seconds * 1e-9,
              cli::bench::summarize(with).median * 1e3);
  std::printf("ratio %.4f [%.4f, %.4f]\n", ratio->value, ratio->low, ratio->high);
  return 0;
}

}  // namespace
}  // namespace weightmap::bench

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: guard_reads CHECKPOINT [ROUNDS]\n");
    return 2;
  }
  const std::size_t rounds = argc == 3 ? std::strtoul(argv[2], nullptr, 10) : 7;
  return weightmap::bench::run(argv[1], std::max<std::size_t>(rounds, 1));
}
