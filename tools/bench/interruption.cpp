#include "tools/bench/interruption.hpp"

#include <csignal>

namespace weightmap::cli::bench {
namespace {

volatile std::sig_atomic_t noted = 0;

// Without SA_RESTART, so that waiting for a sample ends at once.
void handle(int signal, void (*handler)(int)) noexcept {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(signal, &action, nullptr);
}

}  // namespace

Interruptible::Interruptible() noexcept {
  handle(SIGINT, [](int) { noted = 1; });
  handle(SIGTERM, [](int) { noted = 1; });
}

Interruptible::~Interruptible() {
  handle(SIGINT, SIG_DFL);
  handle(SIGTERM, SIG_DFL);
}

bool interrupted() noexcept { return noted != 0; }

Result<void> go_on() {
  if (!interrupted()) return {};
  return failure(ErrorCode::io, "interrupted");
}

}  // namespace weightmap::cli::bench
