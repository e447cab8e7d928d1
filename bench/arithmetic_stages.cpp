// Stages that need no file.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "bench/stage_bench.hpp"
#include "mmap/memory/huge_pages.hpp"
#include "runtime/bytes/buffer.hpp"
#include "runtime/warm/warm_plan.hpp"
#include "runtime/zip/crc32.hpp"

namespace weightmap::bench {
namespace {

// `count` tensors of `length` bytes, one behind the other with a header between, as a file has
// them.
std::vector<ByteRange> tensors_in_file_order(std::int64_t count, std::uint64_t length) {
  constexpr std::uint64_t header_bytes = 64;
  std::vector<ByteRange> ranges;
  for (std::int64_t i = 0; i < count; ++i)
    ranges.push_back({static_cast<std::uint64_t>(i) * (length + header_bytes), length});
  return ranges;
}

void plan(benchmark::State& state, const std::vector<ByteRange>& ranges, std::uint64_t file_bytes) {
  constexpr WarmPlanLimits limits{std::uint64_t{8} << 20, ~std::uint64_t{0}, 4096};
  const ByteRange file{0, file_bytes};
  repeat(state, [&]() -> Result<void> {
    const WarmPlan made = plan_warm_up(ranges, {&file, 1}, limits);
    benchmark::DoNotOptimize(made.steps.data());
    return {};
  });
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(ranges.size()));
}

void plan_file_order(benchmark::State& state, std::uint64_t length) {
  const std::vector<ByteRange> ranges = tensors_in_file_order(state.range(0), length);
  plan(state, ranges, ranges.back().offset + length);
}

void plan_random_order(benchmark::State& state, std::uint64_t length) {
  std::vector<ByteRange> ranges = tensors_in_file_order(state.range(0), length);
  const std::uint64_t file_bytes = ranges.back().offset + length;
  std::shuffle(ranges.begin(), ranges.end(), std::mt19937(1));
  plan(state, ranges, file_bytes);
}

// More than the caches of a processor hold, in large pages as the page cache has them.
class Noise {
 public:
  Noise() : buffer_(std::size_t{128} << 20, memory_) {
    std::generate(words().begin(), words().end(), std::mt19937_64(1));
  }
  std::span<const std::byte> bytes() const noexcept { return buffer_.span(); }
  std::span<std::uint64_t> words() noexcept {
    return {reinterpret_cast<std::uint64_t*>(buffer_.data()), buffer_.size() / 8};
  }

 private:
  os::HugePageResource memory_;
  bytes::Buffer buffer_;
};

void set_bytes(benchmark::State& state, const Noise& noise) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(noise.bytes().size()));
}

void crc32(benchmark::State& state) {
  const Noise noise;
  repeat(state, [&]() -> Result<void> {
    benchmark::DoNotOptimize(zip::crc32(noise.bytes()));
    return {};
  });
  set_bytes(state, noise);
}

// A cache line at a time: one sum alone waits for itself, and not for memory.
std::uint64_t sum_of(std::span<const std::uint64_t> words) {
  std::array<std::uint64_t, 8> sums{};
  for (std::size_t line = 0; line < words.size(); line += sums.size())
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += words[line + i];
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

// What reading the bytes costs, whatever is done with them.
void sum(benchmark::State& state) {
  Noise noise;
  repeat(state, [&]() -> Result<void> {
    benchmark::DoNotOptimize(sum_of(noise.words()));
    return {};
  });
  set_bytes(state, noise);
}

}  // namespace

void add_arithmetic_stages() {
  constexpr std::uint64_t small = std::uint64_t{4} << 10;
  constexpr std::uint64_t large = std::uint64_t{1} << 20;
  const auto add = [](const char* name, void (*run)(benchmark::State&, std::uint64_t),
                      std::uint64_t length) {
    benchmark::RegisterBenchmark(name, run, length)->Arg(10)->Arg(1000)->Arg(100000);
  };
  add("plan_file_order_4_kib", plan_file_order, small);
  add("plan_random_order_4_kib", plan_random_order, small);
  add("plan_file_order_1_mib", plan_file_order, large);
  add("plan_random_order_1_mib", plan_random_order, large);
  benchmark::RegisterBenchmark("crc32", crc32);
  benchmark::RegisterBenchmark("sum", sum);
}

}  // namespace weightmap::bench
