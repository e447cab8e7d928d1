#include "mmap/fault_handler.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>

#include "runtime/base/try.hpp"
#include "runtime/system/os_error.hpp"

namespace weightmap::mmap {
namespace {

using Action = struct sigaction;

constexpr unsigned max_previous = 16;
constexpr unsigned max_depth = 32;

// One per signal and process, like the signal's action. The handler reads it without a lock.
struct Chain {
  int signal;
  const char* name;
  std::mutex installing{};
  std::array<Action, max_previous> previous{};  // the oldest first
  std::atomic<unsigned> count{0};
  std::atomic<bool (*)(std::uintptr_t) noexcept> repair_at{nullptr};
  std::atomic<bool (*)() noexcept> repair_anywhere{nullptr};
};
constinit Chain bus_chain{SIGBUS, "SIGBUS"};
constinit Chain segv_chain{SIGSEGV, "SIGSEGV"};

Chain& chain_of(int signal) noexcept { return signal == SIGBUS ? bus_chain : segv_chain; }

// State while this thread runs an earlier handler, which may pass the signal back. Initial exec,
// since another kind of thread-local variable could be allocated in a signal handler.
struct Passing {
  const void* frame = nullptr;
  const void* stack = nullptr;  // the frame's stack: see stack_of_signals()
  const siginfo_t* info = nullptr;
  unsigned depth = 0;    // position in the chain
  unsigned nesting = 0;  // of calls on this thread's stack
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Passing bus_passing;
[[gnu::tls_model("initial-exec")]] constinit thread_local Passing segv_passing;

// True if the thread cannot continue, since it would fault again.
bool is_fault(const siginfo_t& info) noexcept {
  return info.si_code > 0 && (info.si_signo != SIGBUS || info.si_code != BUS_MCEERR_AO);
}

// True for the kinds that FaultRepair handles.
bool is_at_an_address(const siginfo_t& info) noexcept {
  if (info.si_signo == SIGSEGV) return info.si_code == SEGV_ACCERR;
  return info.si_code == BUS_ADRERR || info.si_code == BUS_OBJERR || info.si_code == BUS_MCEERR_AR;
}

bool was_raised_here(const siginfo_t& info) noexcept {
  return (info.si_code == SI_TKILL || info.si_code == SI_USER) && info.si_pid == ::getpid();
}

void set_default_action(int signal) noexcept {
  Action action{};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
}

// Ends the process when the handler returns, with the full siginfo for the core dump.
void end_process(int signal, siginfo_t* info) noexcept {
  set_default_action(signal);
  ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::syscall(SYS_gettid), signal, info);
}

// Calls a handler as the kernel does.
void call(const Action& action, int signal, siginfo_t* info, void* context) noexcept {
  const int flags = static_cast<int>(action.sa_flags);
  if ((flags & static_cast<int>(SA_RESETHAND)) != 0) set_default_action(signal);
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &action.sa_mask, &before);
  if ((flags & SA_NODEFER) != 0) {
    sigset_t itself;
    ::sigemptyset(&itself);
    ::sigaddset(&itself, signal);
    ::pthread_sigmask(SIG_UNBLOCK, &itself, nullptr);
  }
  if ((flags & SA_SIGINFO) != 0)
    action.sa_sigaction(signal, info, context);
  else
    action.sa_handler(signal);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Returns the thread's signal stack if this runs on it; nullptr on the thread's own stack.
const void* stack_of_signals() noexcept {
  stack_t stack{};
  if (::sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_ONSTACK) == 0) return nullptr;
  return stack.ss_sp;
}

void pass_on(const Chain& chain, siginfo_t* info, void* context) noexcept {
  Passing& passing = chain.signal == SIGBUS ? bus_passing : segv_passing;
  const void* const here = __builtin_frame_address(0);
  const void* const stack = stack_of_signals();
  // Detects that the handler called before has left by longjmp. Addresses are comparable on one
  // stack only; no handler switches stacks, since ours runs on the signal stack.
  if (stack != passing.stack || here >= passing.frame) passing = {};
  if (is_fault(*info) && info != passing.info) passing.depth = 0;
  const unsigned count = chain.count;
  if (count == 0 || passing.nesting == max_depth) return end_process(chain.signal, info);
  const Action& next = chain.previous[count - 1 - std::min(passing.depth, count - 1)];
  const bool is_function = next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN;
  // The kernel does not allow ignoring a fault.
  if (next.sa_handler == SIG_IGN && !is_fault(*info)) return;
  if (!is_function) return end_process(chain.signal, info);
  const Passing before = passing;
  passing = {here, stack, info, before.depth + 1, before.nesting + 1};
  call(next, chain.signal, info, context);
  passing = before;
}

void handle(int signal, siginfo_t* info, void* context) {
  const int error_number = errno;
  const Chain& chain = chain_of(signal);
  const bool repaired =
      is_at_an_address(*info)
          ? chain.repair_at.load()(reinterpret_cast<std::uintptr_t>(info->si_addr))
          : was_raised_here(*info) && chain.repair_anywhere.load()();
  if (!repaired) pass_on(chain, info, context);
  errno = error_number;
}

bool is_ours(const Action& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == handle;
}

bool is_same(const Action& a, const Action& b) noexcept {
  bool same = a.sa_flags == b.sa_flags && a.sa_handler == b.sa_handler;
  for (int signal = 1; signal < NSIG; ++signal)
    same = same && ::sigismember(&a.sa_mask, signal) == ::sigismember(&b.sa_mask, signal);
  return same;
}

tl::unexpected<Error> install_failure(const Chain& chain) {
  return os::os_failure(std::string("install a handler for ") + chain.name);
}

Result<void> remember(Chain& chain, const Action& action) {
  const unsigned count = chain.count;
  if (count > 0 && is_same(chain.previous[count - 1], action)) return {};
  if (count == max_previous)
    return failure(ErrorCode::limit_exceeded, std::string("cannot install a handler for ") +
                                                  chain.name +
                                                  ": others have put theirs in front of it " +
                                                  std::to_string(max_previous) + " times");
  chain.previous[count] = action;
  chain.count = count + 1;
  return {};
}

}  // namespace

Result<void> install_fault_handler(int signal, const FaultRepair& repair) {
  Chain& chain = chain_of(signal);
  const std::lock_guard lock(chain.installing);
  Action current{};
  if (::sigaction(signal, nullptr, &current) != 0) return install_failure(chain);
  if (is_ours(current)) return {};
  TRY(remember(chain, current));
  chain.repair_at = repair.at;
  chain.repair_anywhere = repair.anywhere;
  Action ours{};
  ours.sa_sigaction = handle;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (current.sa_flags & SA_RESTART);
  ::sigemptyset(&ours.sa_mask);
  if (::sigaction(signal, &ours, nullptr) != 0) return install_failure(chain);
  if (fault_handler_is_first(signal)) return {};
  return failure(ErrorCode::unsupported,
                 std::string("cannot install a handler for ") + chain.name +
                     ": something in this process keeps it for itself (a sanitizer with "
                     "handle_sigbus=2 or handle_segv=2, allow_user_segv_handler=0)");
}

bool fault_handler_is_first(int signal) noexcept {
  Action current{};
  return ::sigaction(signal, nullptr, &current) == 0 && is_ours(current);
}

}  // namespace weightmap::mmap
