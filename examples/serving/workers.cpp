#include "examples/serving/workers.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "examples/serving/signals.hpp"

namespace serving {
namespace {

using namespace std::chrono_literals;

constexpr auto between_starts = 1s;  // in one place
constexpr auto time_to_end = 3s;

void report_death(pid_t pid, int status) {
  if (WIFSIGNALED(status))
    std::fprintf(stderr, "worker %d died: %s\n", pid, strsignal(WTERMSIG(status)));
  else
    std::fprintf(stderr, "worker %d ended with exit code %d\n", pid, WEXITSTATUS(status));
}

}  // namespace

Workers::Workers(std::size_t count, std::function<int(std::size_t)> work)
    : work_(std::move(work)), places_(count) {}

Workers::~Workers() {
  send_all(SIGTERM);
  const auto deadline = Clock::now() + time_to_end;
  while (is_anybody_left() && Clock::now() < deadline) {
    wait_for_signal(10ms);
    for (Place& place : places_)
      if (place.pid != 0 && waitpid(place.pid, nullptr, WNOHANG) == place.pid) place.pid = 0;
  }
  send_all(SIGKILL);
  for (const Place& place : places_)
    if (place.pid != 0) waitpid(place.pid, nullptr, 0);
}

void Workers::start_missing() {
  for (std::size_t place = 0; place < places_.size(); ++place) {
    const Place& at = places_[place];
    const bool was_just_started =
        at.started != Clock::time_point{} && Clock::now() < at.started + between_starts;
    if (at.pid == 0 && !was_just_started) start(place);
  }
}

void Workers::bury_dead() {
  for (Place& place : places_) {
    int status = 0;
    if (place.pid == 0 || waitpid(place.pid, &status, WNOHANG) != place.pid) continue;
    report_death(place.pid, status);
    place.pid = 0;
  }
}

void Workers::send_all(int signal) const {
  for (const Place& place : places_)
    if (place.pid != 0) kill(place.pid, signal);
}

void Workers::start(std::size_t place) {
  places_[place].started = Clock::now();
  const pid_t pid = fork();
  if (pid == 0) _exit(work_(place));  // without the clean-up that is the parent's
  if (pid < 0)
    std::perror("fork");
  else
    places_[place].pid = pid;
}

bool Workers::is_anybody_left() const {
  return std::ranges::any_of(places_, [](const Place& place) { return place.pid != 0; });
}

}  // namespace serving
