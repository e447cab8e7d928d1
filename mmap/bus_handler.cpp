#include "mmap/bus_handler.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>

#include "mmap/os_error.hpp"

namespace weightmap::os {
namespace {

using Action = struct sigaction;

constexpr unsigned max_previous = 16;
constexpr unsigned max_depth = 32;

// One for the process, as the action of a signal is. The handler reads, and it takes no lock.
struct Chain {
  std::mutex installing;
  std::array<Action, max_previous> previous{};  // the oldest first
  std::atomic<unsigned> count{0};
  std::atomic<bool (*)(std::uintptr_t) noexcept> repair_at{nullptr};
  std::atomic<bool (*)() noexcept> repair_anywhere{nullptr};
};
constinit Chain chain;

// Where this thread has called a handler of somebody else's, which may come back to ours. Initial
// exec: another kind of variable could be allocated at its first use, which is in a signal handler.
struct Passing {
  const void* frame = nullptr;
  const siginfo_t* info = nullptr;
  unsigned depth = 0;    // how far down the chain
  unsigned nesting = 0;  // of calls in this thread's stack
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Passing passing;

// The thread cannot go on, since it would only do the same again.
bool is_fault(const siginfo_t& info) noexcept {
  return info.si_code > 0 && info.si_code != BUS_MCEERR_AO;
}

bool is_missing_page(const siginfo_t& info) noexcept {
  return info.si_code == BUS_ADRERR || info.si_code == BUS_OBJERR || info.si_code == BUS_MCEERR_AR;
}

bool was_raised_here(const siginfo_t& info) noexcept {
  return (info.si_code == SI_TKILL || info.si_code == SI_USER) && info.si_pid == ::getpid();
}

void set_default_action() noexcept {
  Action action{};
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGBUS, &action, nullptr);
}

// Comes when the handler returns, with all that is known about it, for the core dump.
void end_process(siginfo_t* info) noexcept {
  set_default_action();
  ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::syscall(SYS_gettid), SIGBUS, info);
}

// As the kernel calls a handler.
void call(const Action& action, int number, siginfo_t* info, void* context) noexcept {
  const int flags = static_cast<int>(action.sa_flags);
  if ((flags & static_cast<int>(SA_RESETHAND)) != 0) set_default_action();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &action.sa_mask, &before);
  if ((flags & SA_NODEFER) != 0) {
    sigset_t bus;
    ::sigemptyset(&bus);
    ::sigaddset(&bus, SIGBUS);
    ::pthread_sigmask(SIG_UNBLOCK, &bus, nullptr);
  }
  if ((flags & SA_SIGINFO) != 0)
    action.sa_sigaction(number, info, context);
  else
    action.sa_handler(number);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void pass_on(int number, siginfo_t* info, void* context) noexcept {
  const void* const here = __builtin_frame_address(0);
  // The one that was called before has jumped out of its handler, or faulted itself.
  if (here >= passing.frame) passing = {};
  if (is_fault(*info) && info != passing.info) passing.depth = 0;
  const unsigned count = chain.count;
  if (count == 0 || passing.nesting == max_depth) return end_process(info);
  const Action& next = chain.previous[count - 1 - std::min(passing.depth, count - 1)];
  const bool is_function = next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN;
  // The kernel does not let a fault be ignored.
  if (next.sa_handler == SIG_IGN && !is_fault(*info)) return;
  if (!is_function) return end_process(info);
  const Passing before = passing;
  passing = {here, info, before.depth + 1, before.nesting + 1};
  call(next, number, info, context);
  passing = before;
}

void handle(int number, siginfo_t* info, void* context) {
  const int error_number = errno;
  const bool repaired =
      is_missing_page(*info)
          ? chain.repair_at.load()(reinterpret_cast<std::uintptr_t>(info->si_addr))
          : was_raised_here(*info) && chain.repair_anywhere.load()();
  if (!repaired) pass_on(number, info, context);
  errno = error_number;
}

bool is_ours(const Action& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == handle;
}

bool is_same(const Action& a, const Action& b) noexcept {
  return a.sa_flags == b.sa_flags && a.sa_handler == b.sa_handler;
}

tl::unexpected<Error> install_failure() { return os_failure("install a handler for SIGBUS"); }

Result<void> remember(const Action& action) {
  const unsigned count = chain.count;
  if (count > 0 && is_same(chain.previous[count - 1], action)) return {};
  if (count == max_previous)
    return failure(ErrorCode::limit_exceeded,
                   "cannot install a handler for SIGBUS: others have put theirs in front of it " +
                       std::to_string(max_previous) + " times");
  chain.previous[count] = action;
  chain.count = count + 1;
  return {};
}

}  // namespace

Result<void> install_bus_handler(const BusRepair& repair) {
  const std::lock_guard lock(chain.installing);
  Action current{};
  if (::sigaction(SIGBUS, nullptr, &current) != 0) return install_failure();
  if (is_ours(current)) return {};
  if (Result<void> ok = remember(current); !ok) return ok;
  chain.repair_at = repair.at;
  chain.repair_anywhere = repair.anywhere;
  Action ours{};
  ours.sa_sigaction = handle;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (current.sa_flags & SA_RESTART);
  ::sigemptyset(&ours.sa_mask);
  if (::sigaction(SIGBUS, &ours, nullptr) != 0) return install_failure();
  if (bus_handler_is_first()) return {};
  return failure(ErrorCode::unsupported,
                 "cannot install a handler for SIGBUS: something in this process keeps it for "
                 "itself (a sanitizer with handle_sigbus=2, allow_user_segv_handler=0)");
}

bool bus_handler_is_first() noexcept {
  Action current{};
  return ::sigaction(SIGBUS, nullptr, &current) == 0 && is_ours(current);
}

}  // namespace weightmap::os
