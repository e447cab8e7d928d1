#include "examples/serving/signals.hpp"

#include <signal.h>

namespace serving {
namespace {

sigset_t awaited() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

}  // namespace

void block_signals() {
  signal(SIGCHLD, SIG_DFL);  // whoever started this process may have had it ignored
  const sigset_t set = awaited();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

int wait_for_signal(std::chrono::milliseconds timeout) {
  const sigset_t set = awaited();
  const timespec time{.tv_sec = timeout.count() / 1000,
                      .tv_nsec = timeout.count() % 1000 * 1'000'000};
  const int signal = sigtimedwait(&set, nullptr, &time);
  return signal < 0 ? 0 : signal;
}

}  // namespace serving
