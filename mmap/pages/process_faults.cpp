#include "mmap/pages/process_faults.hpp"

#include <sys/resource.h>
#include <unistd.h>

namespace weightmap::os {

ProcessFaults process_faults() noexcept {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);  // cannot fail with these arguments
  return {static_cast<std::uint64_t>(usage.ru_minflt), static_cast<std::uint64_t>(usage.ru_majflt),
          ::getpid()};
}

ProcessFaults faults_since(const ProcessFaults& start) noexcept {
  ProcessFaults faults = process_faults();
  if (faults.process != start.process) return faults;
  faults.minor -= start.minor;
  faults.major -= start.major;
  return faults;
}

}  // namespace weightmap::os
