#include "tools/bench/cold/recycle_memory.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "tools/bench/cold/machine.hpp"

namespace weightmap::cli::bench {
namespace {

// Runs in a process of its own, which the system may kill for it.
[[noreturn]] void touch_and_exit(std::size_t bytes) noexcept {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) ::_exit(1);
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  for (std::size_t at = 0; at < bytes; at += 4096) static_cast<volatile char*>(memory)[at] = 1;
  ::_exit(0);
}

}  // namespace

void recycle_memory(std::uint64_t wanted) {
  const std::uint64_t bytes = std::min(wanted, available_memory() / 2);
  if (bytes == 0) return;
  const pid_t pid = ::fork();
  if (pid == 0) touch_and_exit(bytes);
  while (pid > 0 && ::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace weightmap::cli::bench
