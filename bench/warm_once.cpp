// Warms a checkpoint up once, in this fresh process, and prints what that cost as one JSON object.
//
//   warm_once FILE METHOD [--warm]
//
// METHOD: `wait` and `wait-crc`, a Warmer until it is done, without and with sums; `copy`, a
// copying loader; `demand` and `demand-during`, one tensor alone or 40 ms into a warm-up of the
// whole file. The file is evicted first; --warm leaves the cache as it is. `weightmap bench`
// measures what a consumer sees.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "weightmap/residency.hpp"
#include "weightmap/warmer.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using weightmap::Checkpoint;
using weightmap::NamedTensor;

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "warm_once: %s\n", why.c_str());
  std::exit(1);
}

double milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

void warm(const Checkpoint& checkpoint, const weightmap::WarmOptions& options) {
  auto warmer = weightmap::Warmer::start(checkpoint, options);
  if (!warmer) fail(to_string(warmer.error()));
  const auto report = warmer->wait();
  if (!report) fail(to_string(report.error()));
  if (!report->crc.faults.empty()) fail(to_string(report->crc.faults.front()));
}

// A copying loader at its best: two threads, into large pages.
void copy(const char* path, std::uint64_t size) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (file < 0 || memory == MAP_FAILED) fail("cannot copy");
  madvise(memory, size, MADV_HUGEPAGE);
  const auto copy_part = [&](std::uint64_t from, std::uint64_t end) {
    constexpr std::uint64_t block = std::uint64_t{8} << 20;
    while (from < end) {
      const ssize_t got = pread(file, static_cast<char*>(memory) + from,
                                std::min(block, end - from), static_cast<off_t>(from));
      if (got <= 0) fail("a read failed");
      from += static_cast<std::uint64_t>(got);
    }
  };
  const std::uint64_t half = size / 2 >> 21 << 21;
  std::thread other(copy_part, half, size);
  copy_part(0, half);
  other.join();
  close(file);
}

// The tensor in the middle of the file, among the largest: not yet there when a warm-up of 40 ms
// has come to the first of them.
NamedTensor late_tensor(const Checkpoint& checkpoint) {
  const auto tensors = checkpoint.tensors();
  std::size_t index = tensors.size() * 3 / 4;
  while (index + 1 < tensors.size() && tensors[index].view.nbytes() < (std::uint64_t{8} << 20))
    ++index;
  return tensors[index];
}

// Milliseconds until it was there.
double demand(const Checkpoint& checkpoint, const NamedTensor& tensor, bool during_warm_up) {
  std::optional<weightmap::Warmer> warmer;
  if (during_warm_up) {
    auto started = weightmap::Warmer::start(checkpoint);
    if (!started) fail(to_string(started.error()));
    warmer = std::move(*started);
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
  }
  const Clock::time_point start = Clock::now();
  if (auto done = checkpoint.demand(tensor.view); !done) fail(to_string(done.error()));
  return milliseconds(Clock::now() - start);
}

// Milliseconds.
double run(const Checkpoint& checkpoint, const char* path, const std::string& method) {
  if (method == "demand" || method == "demand-during")
    return demand(checkpoint, late_tensor(checkpoint), method != "demand");
  const Clock::time_point start = Clock::now();
  if (method == "copy") {
    copy(path, checkpoint.info().file_bytes);
  } else if (method == "wait" || method == "wait-crc") {
    weightmap::WarmOptions options;
    options.verify_crc = method == "wait-crc";
    warm(checkpoint, options);
  } else {
    fail("unknown method " + method);
  }
  return milliseconds(Clock::now() - start);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: warm_once FILE METHOD [--warm]\n");
    return 2;
  }
  std::uint64_t cached = 0;
  if (argc == 3) {
    const auto evicted = weightmap::evict(argv[1]);
    if (!evicted) fail(to_string(evicted.error()));
    cached = evicted->cached_after;
  }
  const auto checkpoint = Checkpoint::open(argv[1]);
  if (!checkpoint) fail(to_string(checkpoint.error()));
  const double time = run(*checkpoint, argv[1], argv[2]);
  std::printf(
      "{\"ms\": %.3f, \"file_bytes\": %llu, \"tensor_bytes\": %llu, \"cached_before\": %llu}\n",
      time, static_cast<unsigned long long>(checkpoint->info().file_bytes),
      static_cast<unsigned long long>(late_tensor(*checkpoint).view.nbytes()),
      static_cast<unsigned long long>(cached));
  return 0;
}
