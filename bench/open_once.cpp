// Opens a checkpoint once, in this fresh process, and prints the cost as one JSON object.
//
//   open_once FILE [--evict]
//
// A loop in one process makes an open look several times faster, because its memory is already
// mapped; so bench/compare_python.py starts this program anew for every sample. --evict drops the
// file from the page cache first and prints how many of its pages stayed.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/proc_value.hpp"
#include "bench/trace_marks.hpp"
#include "weightmap/checkpoint.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double microseconds(std::chrono::nanoseconds duration) {
  return static_cast<double>(duration.count()) / 1000.0;
}

struct Counters {
  long long disk_bytes = proc_value("/proc/self/io", "read_bytes:");
  long long peak_kib = proc_value("/proc/self/status", "VmHWM:");
  long minor_faults = 0;
  long major_faults = 0;
  Counters() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    minor_faults = usage.ru_minflt;
    major_faults = usage.ru_majflt;
  }
};

std::size_t resident_pages(int file, std::size_t size) {
  void* map = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  if (map == MAP_FAILED) return 0;
  std::vector<unsigned char> pages((size + 4095) / 4096);
  mincore(map, size, pages.data());
  munmap(map, size);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

// Returns how many pages of the file are still cached.
std::size_t evict(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const auto size = static_cast<std::size_t>(lseek(file, 0, SEEK_END));
  fdatasync(file);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  const std::size_t left = resident_pages(file, size);
  close(file);
  return left;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: open_once FILE [--evict]\n");
    return 2;
  }
  const bool cold = argc > 2 && std::strcmp(argv[2], "--evict") == 0;
  const std::size_t left = cold ? evict(argv[1]) : 0;
  const Counters before;
  weightmap::cli::bench::begin_counted_calls();
  const Clock::time_point start = Clock::now();
  const auto checkpoint = weightmap::Checkpoint::open(argv[1]);
  const auto total = Clock::now() - start;
  weightmap::cli::bench::end_counted_calls();
  const Counters after;
  if (!checkpoint) {
    std::fprintf(stderr, "open_once: %s\n", to_string(checkpoint.error()).c_str());
    return 1;
  }
  const weightmap::OpenStats& stats = checkpoint->stats();
  std::printf(
      "{\"tensors\": %zu, \"open_us\": %.1f, \"directory_us\": %.1f, \"pickle_us\": %.1f, "
      "\"catalog_us\": %.1f, \"mapping_us\": %.1f, \"reads\": %llu, \"bytes_read\": %llu, "
      "\"local_headers_read\": %llu, \"disk_bytes\": %lld, \"peak_kib_before\": %lld, "
      "\"peak_kib\": %lld, \"minor_faults\": %ld, \"major_faults\": %ld, \"pickle_bytes\": %llu, "
      "\"cached_pages_before\": %zu}\n",
      checkpoint->tensors().size(), microseconds(total), microseconds(stats.directory),
      microseconds(stats.pickle), microseconds(stats.catalog), microseconds(stats.mapping),
      static_cast<unsigned long long>(stats.reads),
      static_cast<unsigned long long>(stats.bytes_read),
      static_cast<unsigned long long>(stats.local_headers_read),
      after.disk_bytes - before.disk_bytes, before.peak_kib, after.peak_kib,
      after.minor_faults - before.minor_faults, after.major_faults - before.major_faults,
      static_cast<unsigned long long>(checkpoint->info().pickle_bytes), left);
  return 0;
}
