#include "tools/run/background.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "tools/run/program.hpp"
#include "tools/support/descriptor.hpp"

namespace weightmap::cli::start {
namespace {

constexpr int niceness = 10;

bool inherits_orphans() noexcept {
  int is_subreaper = 0;
  ::prctl(PR_GET_CHILD_SUBREAPER, &is_subreaper);
  return ::getpid() == 1 || is_subreaper != 0;
}

// Leaves the terminal, the group and the files of the command; `kept` becomes descriptor 3.
void detach(int kept, bool speaks) noexcept {
  ::setsid();
  ::setpriority(PRIO_PROCESS, 0, niceness);
  for (const int ignored : {SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ})
    std::signal(ignored, SIG_IGN);
  std::signal(SIGTERM, SIG_DFL);
  ::dup2(kept, 3);
  const int nothing = ::open("/dev/null", O_RDWR);
  ::dup2(nothing, 0);
  ::dup2(nothing, 1);
  if (!speaks) ::dup2(nothing, 2);
  close_all_above(3);
}

}  // namespace

bool run_in_background(
    bool speaks,
    const std::function<void(pid_t command, const std::function<void()>& go_on)>& work) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  const Descriptor waiting(ends[0]);
  Descriptor telling(ends[1]);
  const pid_t command = ::getpid();
  const bool is_adopted = inherits_orphans();
  const pid_t first =
      is_adopted ? static_cast<pid_t>(::syscall(SYS_clone, 0, 0, 0, 0, 0)) : ::fork();
  if (first < 0) return false;
  if (first == 0) {
    if (!is_adopted && ::fork() != 0) ::_exit(0);
    // More than three, so that it is none of the three that follow.
    const int kept = ::fcntl(telling.get(), F_DUPFD, 4);
    detach(kept, speaks);
    try {
      work(command, [waits = true]() mutable {
        if (std::exchange(waits, false)) ::close(3);
      });
    } catch (...) {  // memory is short: then nothing is read ahead
    }
    ::_exit(0);
  }
  telling = Descriptor();
  if (!is_adopted)
    while (::waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
    }
  char none = 0;
  while (::read(waiting.get(), &none, 1) < 0 && errno == EINTR) {
  }
  return true;
}

}  // namespace weightmap::cli::start
