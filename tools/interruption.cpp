#include "tools/interruption.hpp"

#include <chrono>
#include <csignal>
#include <thread>

namespace weightmap::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void note(int) { interrupted = 1; }

}  // namespace

Interruption::Interruption() noexcept {
  interrupted = 0;
  old_int_ = std::signal(SIGINT, note);
  old_term_ = std::signal(SIGTERM, note);
}

Interruption::~Interruption() {
  std::signal(SIGINT, old_int_);
  std::signal(SIGTERM, old_term_);
}

bool Interruption::happened() const noexcept { return interrupted != 0; }

void Interruption::wait() const {
  while (!happened()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

}  // namespace weightmap::cli
