#include "tools/bench/cold/rounds.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <numeric>

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

Turns::Turns(std::size_t contenders) : order_(contenders) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
}

const std::vector<std::size_t>& Turns::next_round() {
  std::shuffle(order_.begin(), order_.end(), random_);
  return order_;
}

std::string progress_text(std::size_t step, std::size_t steps, double seconds,
                          const std::string& what) {
  std::string text = "[" + std::to_string(step) + " of " + std::to_string(steps);
  if (step > 1 && step <= steps) {
    const double each = seconds / static_cast<double>(step - 1);
    const double left = each * static_cast<double>(steps - step + 1);
    text += ", about " + std::to_string(static_cast<std::uint64_t>(left + 0.5)) + " s left";
  }
  return text + "] " + what;
}

ProgressLine::ProgressLine(std::size_t steps)
    : enabled_(isatty(STDERR_FILENO) == 1), steps_(steps) {}

ProgressLine::~ProgressLine() {
  if (enabled_) std::fputs("\r\x1b[K", stderr);
}

void ProgressLine::begin(const std::string& what) {
  ++done_;
  if (!enabled_) return;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began_;
  std::fprintf(stderr, "\r%s\x1b[K", progress_text(done_, steps_, time.count(), what).c_str());
}

void recycle_memory(std::uint64_t wanted) {
  const std::uint64_t bytes = std::min(wanted, available_memory() / 2);
  if (bytes == 0) return;
  const pid_t pid = ::fork();
  if (pid == 0) touch_and_exit(bytes);
  while (pid > 0 && ::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace weightmap::cli::bench
