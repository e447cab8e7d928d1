#include "tools/support/signals.hpp"

#include <ctime>

namespace weightmap::cli {
namespace {

using Handler = void (*)(int);
Handler inherited_pipe = SIG_DFL, inherited_size_limit = SIG_DFL;

volatile std::sig_atomic_t noted = 0;

// Without SA_RESTART, so that waiting ends at once.
struct sigaction note_signal(int signal) noexcept {
  struct sigaction action {};
  struct sigaction old {};
  action.sa_handler = [](int) { noted = 1; };
  ::sigaction(signal, &action, &old);
  return old;
}

}  // namespace

void ignore_write_signals() noexcept {
  inherited_pipe = std::signal(SIGPIPE, SIG_IGN);
  inherited_size_limit = std::signal(SIGXFSZ, SIG_IGN);
}

void restore_write_signals() noexcept {
  std::signal(SIGPIPE, inherited_pipe);
  std::signal(SIGXFSZ, inherited_size_limit);
}

Interruptible::Interruptible() noexcept
    : old_int_(note_signal(SIGINT)), old_term_(note_signal(SIGTERM)) {}

Interruptible::~Interruptible() {
  ::sigaction(SIGINT, &old_int_, nullptr);
  ::sigaction(SIGTERM, &old_term_, nullptr);
}

void Interruptible::sleep_for(std::chrono::nanoseconds time) const noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec wanted{static_cast<std::time_t>(seconds.count()),
                        static_cast<long>((time - seconds).count())};
  ::nanosleep(&wanted, nullptr);
}

bool interrupted() noexcept { return noted != 0; }

Result<void> go_on() {
  if (!interrupted()) return {};
  return failure(ErrorCode::io, "interrupted");
}

}  // namespace weightmap::cli
