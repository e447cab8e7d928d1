#include "tools/interruptible.hpp"

#include <csignal>
#include <ctime>

namespace weightmap::cli {
namespace {

volatile std::sig_atomic_t noted = 0;

void note(int) { noted = 1; }

}  // namespace

Interruptible::Interruptible() noexcept
    : old_int_(std::signal(SIGINT, note)), old_term_(std::signal(SIGTERM, note)) {}

Interruptible::~Interruptible() {
  std::signal(SIGINT, old_int_);
  std::signal(SIGTERM, old_term_);
}

bool Interruptible::interrupted() const noexcept { return noted != 0; }

void Interruptible::sleep_for(std::chrono::nanoseconds time) const noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec wanted{static_cast<std::time_t>(seconds.count()),
                        static_cast<long>((time - seconds).count())};
  ::nanosleep(&wanted, nullptr);
}

}  // namespace weightmap::cli
