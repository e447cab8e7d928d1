#include "tools/snapshot/supervised_command.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "tools/run/work_beside.hpp"
#include "tools/snapshot/namespaces.hpp"

namespace weightmap::cli::snapshot {
namespace {

// Ends with this process. Throws system_error if the system has no thread for it.
void pass_signals_on(pid_t supervisor) {
  std::thread([supervisor] {
    sigset_t all;
    sigfillset(&all);
    for (int signal = 0; ::sigwait(&all, &signal) == 0;)
      if (signal != SIGCHLD) ::kill(supervisor, signal);
  }).detach();
}

}  // namespace

Result<SupervisedCommand> SupervisedCommand::create(Supervision what) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return failure(ErrorCode::io, std::string("no socket can be made: ") + std::strerror(errno));
  Descriptor mine(ends[0]), theirs(ends[1]);
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &what.signals);
  const auto as_before = [&what] { ::sigprocmask(SIG_SETMASK, &what.signals, nullptr); };
  const Result<pid_t> made = run_in_namespaces([&] {
    mine = Descriptor();
    supervise(std::move(theirs), what);
  });
  if (!made) {
    as_before();
    return tl::unexpected(made.error());
  }
  theirs = Descriptor();
  SupervisedCommand command(std::move(mine), *made);
  const std::optional<Report> first = command.next_report();
  std::string why = first ? first->text.data() : "the supervisor has ended";
  if (first && first->kind == Report::prepared) try {
      pass_signals_on(*made);
      return command;
    } catch (const std::system_error& refusal) {
      why = std::string("cannot start a thread: ") + refusal.what();
      ::kill(*made, SIGKILL);
    }
  ::waitpid(*made, nullptr, 0);
  as_before();
  return failure(ErrorCode::io, std::move(why));
}

SupervisedCommand::SupervisedCommand(Descriptor socket, pid_t supervisor)
    : socket_(std::move(socket)), supervisor_(supervisor) {}

void SupervisedCommand::start() { order(Order::start, {}, nullptr); }

void SupervisedCommand::restore(const std::filesystem::path& image, const Manifest& manifest) {
  order(Order::restore, image, &manifest);
}

Result<Report> SupervisedCommand::dump(const std::filesystem::path& image,
                                       const Manifest& manifest) {
  order(Order::dump, image, &manifest);
  while (const std::optional<Report> report = next_report()) {
    if (report->kind == Report::dumped) return *report;
    if (report->kind == Report::not_dumped) return failure(ErrorCode::io, report->text.data());
  }
  return failure(ErrorCode::io, "the command ended");
}

void SupervisedCommand::go_on() { order(Order::go_on, {}, nullptr); }

void SupervisedCommand::give_up_dump() { order(Order::no_dump, {}, nullptr); }

std::optional<Report> SupervisedCommand::outcome() {
  while (const std::optional<Report> report = next_report())
    if (report->kind != Report::prepared) return report;
  return std::nullopt;
}

int SupervisedCommand::wait() {
  while (next_report()) {
  }
  while (::waitpid(supervisor_, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!end_) return 128 + SIGKILL;  // the supervisor was killed, and the command with it
  return start::end_as(end_->status);
}

std::optional<Report> SupervisedCommand::next_report() {
  if (end_) return std::nullopt;
  Report report;
  ssize_t got = 0;
  while ((got = ::recv(socket_.get(), &report, sizeof report, 0)) < 0 && errno == EINTR) {
  }
  if (got != static_cast<ssize_t>(sizeof report)) return std::nullopt;
  if (report.kind == Report::ended) end_ = report;
  return report.kind == Report::ended ? std::nullopt : std::optional<Report>(report);
}

void SupervisedCommand::order(Order::Kind kind, const std::filesystem::path& folder,
                              const Manifest* manifest) {
  Order order;
  order.kind = kind;
  const std::string path = folder.native();
  std::memcpy(order.folder.data(), path.data(), std::min(path.size(), order.folder.size() - 1));
  if (manifest != nullptr) {
    order.pipes = manifest->pipes;
    order.root = manifest->root;
    order.keeps_connections = manifest->keeps_connections;
    order.image_bytes = manifest->image_bytes();
  }
  static_cast<void>(::send(socket_.get(), &order, sizeof order, MSG_NOSIGNAL));
}

}  // namespace weightmap::cli::snapshot
