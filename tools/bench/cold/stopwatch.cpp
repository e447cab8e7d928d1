#include "tools/bench/cold/stopwatch.hpp"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace weightmap::cli::bench {
namespace {

// Returns the number behind `name` in a file of lines such as "RssAnon:  1024 kB"; otherwise 0.
std::uint64_t number_in(const char* path, std::string_view name) {
  std::ifstream lines(path);
  std::string word;
  std::uint64_t number = 0;
  while (lines >> word)
    if (word == name && lines >> number) return number;
  return 0;
}

// A decrease during a sample counts as 0, not as a huge number.
std::uint64_t growth(std::uint64_t before, std::uint64_t after) noexcept {
  return after > before ? after - before : 0;
}

}  // namespace

Usage Usage::now() {
  Usage usage;
  usage.disk_bytes = number_in("/proc/self/io", "read_bytes:");
  usage.anonymous_bytes = number_in("/proc/self/status", "RssAnon:") * 1024;
  usage.file_bytes = number_in("/proc/self/status", "RssFile:") * 1024;
  rusage faults{};
  getrusage(RUSAGE_SELF, &faults);
  usage.minor_faults = static_cast<std::uint64_t>(faults.ru_minflt);
  usage.major_faults = static_cast<std::uint64_t>(faults.ru_majflt);
  return usage;
}

Stopwatch::Stopwatch() : before_(Usage::now()), start_(Clock::now()) {}

Sample Stopwatch::stop() {
  const Usage after = Usage::now();
  sample_.disk_bytes = growth(before_.disk_bytes, after.disk_bytes);
  sample_.minor_faults = growth(before_.minor_faults, after.minor_faults);
  sample_.major_faults = growth(before_.major_faults, after.major_faults);
  sample_.anonymous_bytes = growth(before_.anonymous_bytes, after.anonymous_bytes);
  sample_.file_bytes = growth(before_.file_bytes, after.file_bytes);
  return sample_;
}

}  // namespace weightmap::cli::bench
