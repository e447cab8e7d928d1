#include "tools/run/work_beside.hpp"

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
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "tools/run/program.hpp"
#include "tools/support/descriptor.hpp"

namespace weightmap::cli::start {
namespace {

constexpr int niceness = 10;  // of reading and learning beside a command

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

// All but those by which a terminal stops both processes and has them go on.
sigset_t passed_on() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int signal : {SIGCHLD, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT})
    sigdelset(&signals, signal);
  return signals;
}

// Ends with this process. Throws system_error if the system has no thread for it.
void pass_signals_on(pid_t command) {
  std::thread([command] {
    const sigset_t signals = passed_on();
    siginfo_t info{};
    for (int signal = 0; (signal = ::sigwaitinfo(&signals, &info)) > 0 || errno == EINTR;)
      if (signal > 0 && info.si_code != SI_KERNEL) ::kill(command, signal);
  }).detach();
}

[[noreturn]] void run_child(int go, const sigset_t& mask, const std::vector<std::string>& command) {
  char none = 0;
  while (::read(go, &none, 1) < 0 && errno == EINTR) {
  }
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::_exit(become(command));
}

}  // namespace

bool run_in_background(bool speaks, const WorkBeside& work) {
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

int end_as(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return WEXITSTATUS(wait_status);
  const int signal = WTERMSIG(wait_status);
  const rlimit no_core{};
  ::setrlimit(RLIMIT_CORE, &no_core);  // the command has left one, if any
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  std::signal(signal, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(signal);
  return 128 + signal;
}

Result<int> run_and_wait(const std::vector<std::string>& command, const WorkBeside& work) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return failure(ErrorCode::io, std::string("no pipe can be made: ") + std::strerror(errno));
  Descriptor waiting(ends[0]), telling(ends[1]);
  const sigset_t signals = passed_on();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &signals, &before);
  const pid_t child = ::fork();
  if (child == 0) {
    telling = Descriptor();
    run_child(waiting.get(), before, command);
  }
  if (child < 0) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return failure(ErrorCode::io, std::string("no process can be made: ") + std::strerror(errno));
  }
  waiting = Descriptor();
  try {
    pass_signals_on(child);
  } catch (const std::system_error& refusal) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return failure(ErrorCode::io, std::string("cannot start a thread: ") + refusal.what());
  }
  ::setpriority(PRIO_PROCESS, 0, niceness);
  try {
    work(child, [&telling] { telling = Descriptor(); });
  } catch (const std::bad_alloc&) {  // then nothing is read ahead
  } catch (const std::system_error&) {
  }
  telling = Descriptor();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return end_as(status);
}

}  // namespace weightmap::cli::start
