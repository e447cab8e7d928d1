#include "bench/count_system_calls.hpp"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <set>
#include <system_error>

#include "bench/trace_marks.hpp"
#include "runtime/base/try.hpp"
#include "tools/bench/cold/stopwatch.hpp"
#include "tools/support/signals.hpp"

namespace weightmap::cli::bench {
namespace {

constexpr int system_call_stop = SIGTRAP | 0x80;  // from PTRACE_O_TRACESYSGOOD

class Tracer {
 public:
  explicit Tracer(pid_t main) noexcept : main_(main) {}

  // Returns the process's final wait status.
  Result<int> run() {
    TRY(begin());
    for (;;) {
      int status = 0;
      const pid_t thread = ::waitpid(-1, &status, __WALL);
      TRY(go_on());
      if (thread < 0 && errno == EINTR) continue;
      if (thread < 0) return refused("waitpid");
      if (thread == main_ && !WIFSTOPPED(status)) return status;
      if (!WIFSTOPPED(status)) continue;
      if (WSTOPSIG(status) == system_call_stop && !look(thread)) return refused("ptrace");
      resume(thread, signal_to_deliver(thread, status));
    }
  }

  std::uint64_t system_calls() const noexcept { return system_calls_; }

 private:
  static tl::unexpected<Error> refused(const char* call) {
    return failure(ErrorCode::unsupported,
                   std::string(call) + ": " + std::generic_category().message(errno));
  }

  // Starts at the stop of the exec.
  Result<void> begin() {
    int status = 0;
    while (::waitpid(main_, &status, __WALL) < 0)
      if (errno != EINTR) return refused("waitpid");
    constexpr long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                             PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
    if (::ptrace(PTRACE_SETOPTIONS, main_, nullptr, options) != 0) return refused("ptrace");
    seen_.insert(main_);
    resume(main_, 0);
    return {};
  }

  bool look(pid_t thread) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) < 0) return errno == ESRCH;
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return true;
    const bool marks = info.entry.nr == SYS_lseek && static_cast<int>(info.entry.args[0]) == -1;
    if (marks && info.entry.args[1] == begin_mark)
      counting_ = true;
    else if (marks && info.entry.args[1] == end_mark)
      counting_ = false;
    else if (counting_)
      ++system_calls_;
    return true;
  }

  // Returns 0 for stops of the tracing itself: system calls, new threads, and their start.
  int signal_to_deliver(pid_t thread, int status) {
    const int signal = WSTOPSIG(status);
    const bool is_new = seen_.insert(thread).second;
    if (signal == system_call_stop || signal == SIGTRAP || (is_new && signal == SIGSTOP)) return 0;
    return signal;
  }

  static void resume(pid_t thread, int signal) noexcept {
    ::ptrace(PTRACE_SYSCALL, thread, nullptr, static_cast<long>(signal));
  }

  pid_t main_;
  std::set<pid_t> seen_;
  bool counting_ = false;
  std::uint64_t system_calls_ = 0;
};

}  // namespace

Result<TracedRun> count_system_calls(const std::vector<std::string>& command) {
  TRY_ASSIGN(Process process, Process::start(command, Process::Traced::yes));
  process.write(std::string(go_line) + "\n");
  Tracer tracer(process.pid());
  TRY_ASSIGN(const int status, tracer.run());
  TRY_ASSIGN(Finished finished, process.finish(status));
  return TracedRun{std::move(finished), tracer.system_calls()};
}

}  // namespace weightmap::cli::bench
