// A worker of kill_storm.py: opens a checkpoint, warms it with one reader for all, and adds up
// every word of every tensor.
//
//   storm_worker FILE                 prints the sum
//   storm_worker FILE SUM             fails if it is another one
//   storm_worker FILE SUM MICROSECONDS   and is killed by the system then (SIGKILL)
#include <signal.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "weightmap/checkpoint.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;

namespace {

std::uint64_t sum_of(const TensorView& view) {
  std::uint64_t sum = 0;
  for (std::span<const std::byte> rest = view.bytes(); rest.size() >= sizeof sum;
       rest = rest.subspan(sizeof sum)) {
    std::uint64_t word = 0;
    std::memcpy(&word, rest.data(), sizeof word);
    sum += word;
  }
  return sum;
}

int fail(const std::string& why) {
  std::fprintf(stderr, "storm_worker: %s\n", why.c_str());
  return EXIT_FAILURE;
}

// Nobody outside could do it at so exact a moment.
bool die_after(const char* microseconds) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return false;
  const long time = std::atol(microseconds);
  itimerspec at{};
  at.it_value.tv_sec = time / 1'000'000;
  at.it_value.tv_nsec = time % 1'000'000 * 1000 + 1;
  return ::timer_settime(timer, 0, &at, nullptr) == 0;
}

int work(const char* path, const char* expected) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return fail(to_string(checkpoint.error()));
  WarmOptions options;
  options.one_reader = true;
  Result<Warmer> warmer = Warmer::start(*checkpoint, options);
  if (!warmer) return fail(to_string(warmer.error()));
  const Result<WarmReport> report = warmer->wait();
  if (!report) return fail(to_string(report.error()));
  if (!report->why_alone.empty()) return fail("nobody was elected: " + report->why_alone);
  if (report->bytes_done + report->bytes_left_out != checkpoint->info().file_bytes)
    return fail(std::to_string(report->bytes_done) + " bytes were warmed");
  std::uint64_t sum = 0;
  for (const NamedTensor& tensor : checkpoint->tensors()) sum += sum_of(tensor.view);
  if (expected == nullptr)
    return std::printf("%" PRIu64 "\n", sum) > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  if (std::to_string(sum) == expected) return EXIT_SUCCESS;
  return fail("the sum is " + std::to_string(sum) + ", expected " + expected);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) return fail("usage: storm_worker FILE [SUM [MICROSECONDS]]");
  if (argc == 4 && !die_after(argv[3])) return fail("no timer");
  return work(argv[1], argc > 2 ? argv[2] : nullptr);
}
