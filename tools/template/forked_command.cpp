#include "tools/template/forked_command.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "runtime/base/try.hpp"
#include "tools/run/work_beside.hpp"
#include "tools/support/descriptor.hpp"

namespace weightmap::cli::templates {
namespace {

void send_signal(const Descriptor& process, int signal) {
  ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
}

// The command is in a session of its own, where SIGTSTP has no effect; and this process stands
// still as long as it does.
void stop_both(const Descriptor& process) {
  send_signal(process, SIGSTOP);
  ::raise(SIGSTOP);
}

void pass_on(const Descriptor& signals, const Descriptor& process) {
  signalfd_siginfo info{};
  if (::read(signals.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return;
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGTSTP)
    stop_both(process);
  else if (signal != SIGCHLD)
    send_signal(process, signal);
}

int wait_for(const TemplatePeer& peer, const Descriptor& signals, const Descriptor& process) {
  bool template_lives = true;
  while (true) {
    std::array polled = {pollfd{signals.get(), POLLIN, 0}, pollfd{process.get(), POLLIN, 0},
                         pollfd{template_lives ? peer.descriptor() : -1, POLLIN, 0}};
    ::poll(polled.data(), polled.size(), -1);
    if (polled[0].revents != 0) pass_on(signals, process);
    if (polled[2].revents != 0) {
      if (const std::optional<int> status = peer.status()) return start::end_as(*status);
      template_lives = false;
    }
    if (!template_lives && (polled[1].revents != 0 || process.get() < 0)) {
      std::fputs(
          "weightmap run: the template was killed, so that nobody knows how the command "
          "ended\n",
          stderr);
      return 1;
    }
  }
}

}  // namespace

Result<int> run_forked(const TemplatePeer& peer, const std::string& variables, bool speaks) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  const auto as_before = [&before](Error error) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return tl::unexpected<Error>(std::move(error));
  };
  const Descriptor signals(::signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
  const Result<pid_t> command = peer.go_on(variables);
  if (!command) return as_before(command.error());
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, *command, 0)));
  if (speaks)
    std::fprintf(stderr, "weightmap run: process %d is a fork of the template, process %d\n",
                 static_cast<int>(*command), static_cast<int>(peer.process()));
  return wait_for(peer, signals, process);
}

}  // namespace weightmap::cli::templates
