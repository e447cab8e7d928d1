// A child process whose system calls are decided here, one by one, before the system sees them: for
// faults at each of them. By the user notification of seccomp, so nothing in the child is changed.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/passed_descriptor.hpp"

namespace weightmap::test {

// A call that the child is about to make.
struct SystemCall {
  pid_t process;
  int number;
  std::array<std::uint64_t, 6> arguments;

  int descriptor() const noexcept { return static_cast<int>(arguments[0]); }
  // The path of what /proc shows as the child's open file.
  std::string open_file() const {
    return "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor());
  }
  // Of the child's memory, what one of the arguments points to.
  std::string bytes_at(std::size_t argument, std::size_t count) const {
    std::string bytes(count, '\0');
    iovec here{bytes.data(), count};
    iovec there{reinterpret_cast<void*>(arguments[argument]), count};
    const ssize_t got = ::process_vm_readv(process, &here, 1, &there, 1, 0);
    bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return bytes;
  }
  // The same for a text; of at most 255 bytes, which may end at the end of what is mapped.
  std::string text_at(std::size_t argument) const {
    const std::size_t in_page = 4096 - arguments[argument] % 4096;
    std::string text = bytes_at(argument, std::min<std::size_t>(256, in_page));
    if (text.find('\0') == std::string::npos) text = bytes_at(argument, 256);
    return text.substr(0, text.find('\0'));
  }
};

struct Answer {
  enum class Kind : std::uint8_t { make_it, fail, succeed, kill } kind = Kind::make_it;
  std::int64_t value = 0;  // the errno to fail with, or what it succeeds with

  static Answer make_it() noexcept { return {}; }
  static Answer fail(int error_number) noexcept { return {Kind::fail, error_number}; }
  static Answer succeed(std::int64_t value) noexcept { return {Kind::succeed, value}; }
  static Answer kill() noexcept { return {Kind::kill, 0}; }
};

namespace detail {

inline int install_listener(const std::vector<int>& not_asked_about) {
  std::vector<sock_filter> code{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int number : not_asked_about) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<__u32>(number), 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return static_cast<int>(
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}

// Until there is nobody left who could make a call.
template <class Decide>
void answer_calls(int listener, pid_t child, Decide& decide) {
  for (;;) {
    pollfd ready{listener, POLLIN, 0};
    if (::poll(&ready, 1, -1) < 0 || (ready.revents & POLLIN) == 0) return;
    seccomp_notif asked{};
    if (::ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) continue;  // it has ended
    SystemCall call{static_cast<pid_t>(asked.pid), asked.data.nr, {}};
    std::copy(std::begin(asked.data.args), std::end(asked.data.args), call.arguments.begin());
    const Answer answer = decide(call);
    seccomp_notif_resp response{};
    response.id = asked.id;
    switch (answer.kind) {
      case Answer::Kind::make_it:
        response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        break;
      case Answer::Kind::fail:
        response.error = static_cast<__s32>(-answer.value);
        break;
      case Answer::Kind::succeed:
        response.val = answer.value;
        break;
      case Answer::Kind::kill:
        ::kill(child, SIGKILL);
        return;
    }
    if (::ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response) != 0) continue;
  }
}

}  // namespace detail

// Not asked about: memory, signals, and the end of the process. Failing for want of memory is an
// exception and another matter.
inline const std::vector<int> unwatched_calls = {
    SYS_mmap,    SYS_munmap, SYS_mprotect,     SYS_madvise,        SYS_mremap,
    SYS_brk,     SYS_futex,  SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn,
    SYS_sendmsg, SYS_exit,   SYS_exit_group};

// Runs `body` in a child, which ends with the number that it returns, and asks `decide` about each
// of its system calls. Returns the wait status; -1, with a message, where the system cannot do it.
template <class Body, class Decide>
int watch_calls(const Body& body, Decide decide) {
  constexpr int cannot_watch = 99;
  std::array<int, 2> sockets{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(sockets[0]);
    const int listener = detail::install_listener(unwatched_calls);
    if (listener < 0 || !send_descriptor(sockets[1], listener)) ::_exit(cannot_watch);
    ::_exit(body());
  }
  ::close(sockets[1]);
  const int listener = receive_descriptor(sockets[0]);
  ::close(sockets[0]);
  if (listener >= 0) {
    detail::answer_calls(listener, child, decide);
    ::close(listener);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (listener >= 0) return status;
  MESSAGE("SKIPPED: the system lets nobody watch system calls (seccomp)");
  return -1;
}

}  // namespace weightmap::test
