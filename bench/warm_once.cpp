// Reads a checkpoint once from a cold page cache, in this fresh process, by one method, and prints
// what that cost as one JSON object.
//
//   warm_once FILE METHOD ORDER [--warm]
//
// METHOD: `touch`, the consumer alone; a name of WarmMethod, which a Warmer does in the background;
// or `direct`, O_DIRECT reads of 4 MiB by two threads: what the disk can do. ORDER: `file` or
// `random`, that of the tensors. The consumer adds up every byte of each tensor as soon as it can.
// Other METHODs have no consumer: `wait` and `wait-crc`, a Warmer until it is done; `copy`, a
// copying loader; `demand` and `demand-during`, one tensor alone or 40 ms into a warm-up of the
// whole file.
// --warm leaves the cache as it is.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

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

long long disk_bytes() {
  std::ifstream lines("/proc/self/io");
  std::string name;
  long long value = -1;
  while (lines >> name)
    if (name == "read_bytes:") lines >> value;
  return value;
}

std::uint64_t sum(const std::byte* bytes, std::size_t size) {
  std::uint64_t total = 0;
  std::uint64_t word;
  for (std::size_t at = 0; at + sizeof word <= size; at += sizeof word) {
    std::memcpy(&word, bytes + at, sizeof word);
    total += word;
  }
  return total;
}

std::vector<std::size_t> tensor_order(const Checkpoint& checkpoint, const std::string& order) {
  std::vector<std::size_t> tensors(checkpoint.tensors().size());
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i] = i;
  if (order == "random") std::shuffle(tensors.begin(), tensors.end(), std::mt19937(7));
  return tensors;
}

struct Outcome {
  std::uint64_t checksum = 0;
  double first_tensor_ms = 0;
  std::uint64_t bytes = 0;  // of what was read, if not of all tensors
};

Outcome consume(const Checkpoint& checkpoint, const std::vector<std::size_t>& tensors,
                Clock::time_point start) {
  Outcome outcome;
  for (std::size_t index : tensors) {
    const NamedTensor tensor = checkpoint.tensors()[index];
    outcome.checksum += sum(tensor.view.bytes().data(), tensor.view.bytes().size());
    if (outcome.first_tensor_ms == 0) outcome.first_tensor_ms = milliseconds(Clock::now() - start);
  }
  return outcome;
}

// Reads the tensors' bytes past the page cache: two threads, so that the disk always has something
// to do, each with a buffer of large pages that is touched before the clock starts.
class DirectReader {
 public:
  DirectReader(const char* path, const Checkpoint& checkpoint,
               const std::vector<std::size_t>& tensors)
      : file_(open(path, O_RDONLY | O_CLOEXEC | O_DIRECT)) {
    if (file_ < 0) fail("cannot open with O_DIRECT");
    for (std::size_t index : tensors) {
      const NamedTensor tensor = checkpoint.tensors()[index];
      const std::uint64_t end = tensor.file_offset + tensor.view.bytes().size();
      for (std::uint64_t at = tensor.file_offset; at < end;) {
        const std::uint64_t stop = std::min(end, at / sector * sector + block);
        pieces_.push_back({at, stop});
        at = stop;
      }
      if (first_tensor_pieces_ == 0) first_tensor_pieces_ = pieces_.size();
    }
    for (auto& buffer : buffers_) {
      buffer.reset(static_cast<std::byte*>(std::aligned_alloc(std::size_t{2} << 20, block)));
      madvise(buffer.get(), block, MADV_HUGEPAGE);
      std::memset(buffer.get(), 1, block);
    }
  }
  ~DirectReader() { close(file_); }

  Outcome run(Clock::time_point start) {
    std::thread other([&] { work(buffers_[1].get(), start); });
    work(buffers_[0].get(), start);
    other.join();
    return {checksum_, first_tensor_ms_, 0};
  }

 private:
  static constexpr std::size_t block = std::size_t{4} << 20;
  static constexpr std::uint64_t sector = 4096;
  struct Piece {
    std::uint64_t offset, end;
  };
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };

  void work(std::byte* buffer, Clock::time_point start) {
    for (std::size_t i = next_++; i < pieces_.size(); i = next_++) {
      const std::uint64_t from = pieces_[i].offset / sector * sector;
      const std::uint64_t length = (pieces_[i].end - from + sector - 1) / sector * sector;
      const ssize_t got = pread(file_, buffer, length, static_cast<off_t>(from));
      if (got < static_cast<ssize_t>(pieces_[i].end - from)) fail("a direct read failed");
      checksum_ += sum(buffer + (pieces_[i].offset - from), pieces_[i].end - pieces_[i].offset);
      if (++done_ == first_tensor_pieces_) first_tensor_ms_ = milliseconds(Clock::now() - start);
    }
  }

  int file_;
  std::vector<Piece> pieces_;
  std::size_t first_tensor_pieces_ = 0;
  std::unique_ptr<std::byte, Free> buffers_[2];
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<std::uint64_t> checksum_{0};
  double first_tensor_ms_ = 0;
};

weightmap::WarmMethod method_from(const std::string& word) {
  using enum weightmap::WarmMethod;
  for (auto method : {automatic, populate, fault, read, readahead, willneed})
    if (to_string(method) == word) return method;
  fail("unknown method " + word);
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
  while (tensors[index].view.nbytes() < (std::uint64_t{8} << 20)) ++index;
  return tensors[index];
}

Outcome demand(const Checkpoint& checkpoint, bool during_warm_up) {
  std::optional<weightmap::Warmer> warmer;
  if (during_warm_up) {
    auto started = weightmap::Warmer::start(checkpoint);
    if (!started) fail(to_string(started.error()));
    warmer = std::move(*started);
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
  }
  const NamedTensor tensor = late_tensor(checkpoint);
  const Clock::time_point start = Clock::now();
  if (auto done = checkpoint.demand(tensor.view); !done) fail(to_string(done.error()));
  Outcome outcome;
  outcome.first_tensor_ms = milliseconds(Clock::now() - start);
  outcome.bytes = tensor.view.nbytes();
  return outcome;
}

Outcome run(const Checkpoint& checkpoint, const char* path, const std::string& method,
            const std::string& order) {
  weightmap::WarmOptions options;
  if (method == "demand" || method == "demand-during")
    return demand(checkpoint, method != "demand");
  if (method == "copy") return copy(path, checkpoint.info().file_bytes), Outcome{};
  if (method == "wait" || method == "wait-crc") {
    options.verify_crc = method == "wait-crc";
    return warm(checkpoint, options), Outcome{};
  }
  const std::vector<std::size_t> tensors = tensor_order(checkpoint, order);
  if (method == "direct") {
    DirectReader reader(path, checkpoint, tensors);
    return reader.run(Clock::now());
  }
  const Clock::time_point start = Clock::now();
  if (method == "touch") return consume(checkpoint, tensors, start);
  options.method = method_from(method);
  options.tensors = tensors;
  auto warmer = weightmap::Warmer::start(checkpoint, options);
  if (!warmer) fail(to_string(warmer.error()));
  const Outcome outcome = consume(checkpoint, tensors, start);
  if (auto report = warmer->wait(); !report) fail(to_string(report.error()));
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: warm_once FILE METHOD ORDER [--warm]\n");
    return 2;
  }
  std::uint64_t cached = 0;
  if (argc == 4) {
    const auto evicted = weightmap::evict(argv[1]);
    if (!evicted) fail(to_string(evicted.error()));
    cached = evicted->cached_after;
  }
  const auto checkpoint = Checkpoint::open(argv[1]);
  if (!checkpoint) fail(to_string(checkpoint.error()));
  const long long disk_before = disk_bytes();
  const Clock::time_point start = Clock::now();
  const Outcome outcome = run(*checkpoint, argv[1], argv[2], argv[3]);
  const double all_ms = milliseconds(Clock::now() - start);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "{\"all_ms\": %.3f, \"first_tensor_ms\": %.3f, \"bytes\": %llu, \"disk_bytes\": %lld, "
      "\"cached_before\": %llu, \"checksum\": %llu, \"minor_faults\": %ld, \"major_faults\": "
      "%ld}\n",
      all_ms, outcome.first_tensor_ms,
      static_cast<unsigned long long>(outcome.bytes != 0 ? outcome.bytes
                                                         : checkpoint->info().tensor_bytes),
      disk_bytes() - disk_before, static_cast<unsigned long long>(cached),
      static_cast<unsigned long long>(outcome.checksum), usage.ru_minflt, usage.ru_majflt);
  return 0;
}
