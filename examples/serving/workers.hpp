// The processes of a server, each in its place: a new one is forked where one died.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

namespace serving {

// For a process with one thread, which is what fork() copies. Needs block_signals().
class Workers {
 public:
  // `work(place)` is the life of a worker and answers its exit code; places count from 0.
  Workers(std::size_t count, std::function<int(std::size_t place)> work);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();  // SIGTERM, and SIGKILL to those that take longer than three seconds

  // Forks where nobody is; in a place where one was started less than a second ago, later, since
  // the next may do no better.
  void start_missing();
  // Finds out who died, and says so on stderr.
  void bury_dead();
  void send_all(int signal) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Place {
    pid_t pid = 0;  // 0: nobody
    Clock::time_point started{};
  };
  void start(std::size_t place);
  bool is_anybody_left() const;

  std::function<int(std::size_t)> work_;
  std::vector<Place> places_;
};

}  // namespace serving
