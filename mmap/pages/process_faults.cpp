#include "mmap/pages/process_faults.hpp"

#include <sys/resource.h>

#include "runtime/system/process/fork_safe.hpp"

namespace weightmap::mmap {

ProcessFaults process_faults() noexcept {
  os::count_forks();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);  // cannot fail with these arguments
  return {static_cast<std::uint64_t>(usage.ru_minflt), static_cast<std::uint64_t>(usage.ru_majflt),
          os::fork_count()};
}

std::uint64_t thread_major_faults() noexcept {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return static_cast<std::uint64_t>(usage.ru_majflt);
}

ProcessFaults faults_since(const ProcessFaults& start) noexcept {
  ProcessFaults faults = process_faults();
  if (faults.forks != start.forks) return faults;
  faults.minor -= start.minor;
  faults.major -= start.major;
  return faults;
}

}  // namespace weightmap::mmap
