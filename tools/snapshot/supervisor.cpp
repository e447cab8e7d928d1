#include "tools/snapshot/supervisor.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "runtime/base/try.hpp"
#include "tools/snapshot/children.hpp"
#include "tools/snapshot/criu.hpp"
#include "tools/snapshot/gate.hpp"
#include "tools/snapshot/meeting_point.hpp"
#include "tools/snapshot/namespaces.hpp"
#include "tools/snapshot/output_copy.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A restore that takes longer hangs: so long, and a second for each piece of its image.
constexpr std::chrono::seconds least_patience{15};
constexpr std::uint64_t bytes_a_second = 20'000'000;

struct Command {
  pid_t id = 0;
  std::optional<int> status;  // once it has ended; of wait(2)
};

// The states. While criu runs, the end of the command waits for criu's.
struct Waiting {};
struct Running {
  Command command;
};
struct Dumping {
  Command command;
  pid_t criu;
};
struct Restoring {
  Command command;
  pid_t criu;
  Gate gate;
  std::chrono::seconds patience;
  std::optional<Clock::time_point> deadline;  // once the gate is open
};
struct Over {};

class Supervisor {
 public:
  Supervisor(Descriptor run, const Supervision& what) : run_(std::move(run)), what_(what) {}

  void work() {
    if (const Result<void> prepared = prepare(); !prepared) {
      report(Report::unprepared, prepared.error().message);
      return;
    }
    report(Report::prepared);
    while (!std::holds_alternative<Over>(state_)) step();
    for (OutputCopy* const copy : {&output_, &error_output_}) {
      copy->close_input();
      copy->finish();
    }
  }

 private:
  Result<void> prepare() {
    ::setsid();
    sigset_t all;
    sigfillset(&all);
    signals_ = Descriptor(::signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
    if (signals_.get() < 0)
      return failure(ErrorCode::io, std::string("no signalfd: ") + std::strerror(errno));
    TRY(mount_own(what_.meeting_point));
    TRY(set_next_id(2));  // of criu, where it restores the command
    TRY(output_.open());
    return error_output_.open();
  }

  void step() {
    const bool is_restoring = deadline_of_restore().has_value();
    std::array polled = {pollfd{run_.get(), POLLIN, 0}, pollfd{signals_.get(), POLLIN, 0},
                         output_.wanted(), error_output_.wanted()};
    ::poll(polled.data(), polled.size(), is_restoring ? 100 : -1);
    if (polled[2].revents != 0) output_.step();
    if (polled[3].revents != 0) error_output_.step();
    if (polled[0].revents != 0) take_order();
    if (polled[1].revents != 0) take_signals();
    const std::optional<Clock::time_point> deadline = deadline_of_restore();
    if (deadline && Clock::now() > *deadline) start_instead("the restore hangs");
  }

  std::optional<Clock::time_point> deadline_of_restore() const {
    const auto* const restoring = std::get_if<Restoring>(&state_);
    return restoring != nullptr ? restoring->deadline : std::nullopt;
  }

  // --- orders ---

  void take_order() {
    Order order;
    const ssize_t got = ::recv(run_.get(), &order, sizeof order, 0);
    if (got == 0) run_ = Descriptor();  // the process that gives orders has ended
    if (got != static_cast<ssize_t>(sizeof order)) return;
    switch (order.kind) {
      case Order::start:
        if (std::holds_alternative<Waiting>(state_)) return start();
        if (std::holds_alternative<Restoring>(state_)) return start_in_place();
        return;
      case Order::restore:
        return restore(order);
      case Order::go_on:
        if (auto* const restoring = std::get_if<Restoring>(&state_)) open_gate(*restoring);
        return;
      case Order::dump:
        if (const auto* const running = std::get_if<Running>(&state_)) dump(order, *running);
        return;
      case Order::no_dump:
        return static_cast<void>(answer_original(what_.meeting_point));
    }
  }

  void start() {
    if (Result<void> set = set_next_id(command_id); !set) say(set.error().message);
    state_ = Running{{fork_command(what_, pipes()), {}}};
    report(Report::started);
    deliver();
  }

  void restore(const Order& order) {
    if (const Result<void> told = answer_restored(what_.meeting_point, environ); !told)
      return start_instead(to_string(told.error()));
    Result<Gate> gate = Gate::create(what_.meeting_point);
    if (!gate) return start_instead(to_string(gate.error()));
    const pid_t criu = fork_restore(what_, order, pipes(), gate->script());
    state_ = Restoring{{order.root, {}},
                       criu,
                       std::move(*gate),
                       least_patience + std::chrono::seconds(order.image_bytes / bytes_a_second),
                       {}};
  }

  static void open_gate(Restoring& restoring) {
    restoring.gate.open();
    restoring.deadline = Clock::now() + restoring.patience;
  }

  void dump(const Order& order, const Running& running) {
    const std::string daemon = orphans(running.command.id);
    if (!daemon.empty()) return not_dumped(daemon);
    const Result<fs::path> script = write_saving_script(what_.meeting_point);
    if (!script) return not_dumped(to_string(script.error()));
    state_ =
        Dumping{running.command, fork_dump(what_, order, running.command.id, pipes(), *script)};
  }

  OutputPipes pipes() const { return {output_.input(), error_output_.input()}; }

  // True for what weightmap.prefetch() has started, which a restored command needs no more.
  static bool reads_ahead(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/cmdline");
    std::string program, command;
    std::getline(file, program, '\0');
    std::getline(file, command, '\0');
    return fs::path(program).filename() == "weightmap" && command == "read-ahead";
  }

  // A sentence if a process is no descendant of the command any more, so that an image lacks it.
  static std::string orphans(pid_t command) {
    std::ifstream file("/proc/1/task/1/children");
    for (pid_t child = 0; file >> child;)
      if (child != command && !reads_ahead(child))
        return "process " + std::to_string(child) +
               " of the command has left it, as daemons do, and would be missing";
    return {};
  }

  // --- ends ---

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD)
        reap();
      else
        pass_on(signal);
    }
  }

  void pass_on(int signal) {
    pending_.push_back(signal);
    deliver();
  }

  // Signals wait for a command that is being restored.
  void deliver() {
    const pid_t command = std::visit(
        [](const auto& state) -> pid_t {
          using State = std::decay_t<decltype(state)>;
          if constexpr (std::is_same_v<State, Running> || std::is_same_v<State, Dumping>)
            return state.command.id;
          return 0;
        },
        state_);
    if (command == 0) return;
    for (const int signal : std::exchange(pending_, {})) ::kill(command, signal);
  }

  void reap() {
    int status = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (auto* const dumping = std::get_if<Dumping>(&state_)) {
        if (ended == dumping->command.id) dumping->command.status = status;
        if (ended == dumping->criu) dump_ended(status, *dumping);
      } else if (auto* const restoring = std::get_if<Restoring>(&state_)) {
        if (ended == restoring->command.id) restoring->command.status = status;
        if (ended == restoring->criu) restore_ended(status, *restoring);
      } else if (auto* const running = std::get_if<Running>(&state_)) {
        if (ended == running->command.id) running->command.status = status;
      }
    }
    if (const auto* const running = std::get_if<Running>(&state_))
      if (running->command.status) end(*running->command.status);
  }

  static bool is_good(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

  void dump_ended(int status, const Dumping& dumping) {
    state_ = Running{Command(dumping.command)};
    is_good(status) ? dumped() : not_dumped(reason_in(dump_log(what_), "the dump"));
  }

  void restore_ended(int status, const Restoring& restoring) {
    if (!is_good(status)) return start_instead(reason_in(restore_log(what_), "the restore"));
    state_ = Running{Command(restoring.command)};
    report(Report::restored);
    deliver();
  }

  std::string reason_in(const fs::path& log, const char* what) const {
    const std::string text = first_error_in(log);
    return text.empty() ? what_.criu.native() + ": " + what + " failed without a word"
                        : "criu: " + text;
  }

  void start_instead(const std::string& why) {
    say("the snapshot was not restored: " + why);
    Report failed = made(Report::not_restored, why);
    failed.is_lasting = why.find("Address already in use") == std::string::npos;
    send(failed);
    start_in_place();
  }

  // What a restore has left is ended first, so that its ids and ports are free.
  void start_in_place() {
    ::kill(-1, SIGKILL);
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
    static_cast<void>(answer_original(what_.meeting_point));
    start();
  }

  void dumped() {
    Report good = made(Report::dumped, "");
    good.pipes = {output_.inode(), error_output_.inode()};
    send(good);
    static_cast<void>(answer_original(what_.meeting_point));
  }

  void not_dumped(const std::string& why) {
    report(Report::not_dumped, why);
    static_cast<void>(answer_original(what_.meeting_point));
  }

  void end(int status) {
    state_ = Over{};
    Report last = made(Report::ended, "");
    last.status = status;
    send(last);
  }

  // --- reports ---

  static Report made(Report::Kind kind, const std::string& text) {
    Report report;
    report.kind = kind;
    std::copy_n(text.begin(), std::min(text.size(), report.text.size() - 1), report.text.begin());
    return report;
  }

  void report(Report::Kind kind, const std::string& text = {}) const { send(made(kind, text)); }

  void send(const Report& report) const {
    static_cast<void>(::send(run_.get(), &report, sizeof report, MSG_NOSIGNAL));
  }

  static void say(const std::string& text) {
    std::fprintf(stderr, "weightmap run: %s\n", text.c_str());
  }

  Descriptor run_;
  const Supervision& what_;
  Descriptor signals_;
  OutputCopy output_{STDOUT_FILENO}, error_output_{STDERR_FILENO};
  std::variant<Waiting, Running, Dumping, Restoring, Over> state_;
  std::vector<int> pending_;  // signals
};

}  // namespace

void supervise(Descriptor run, const Supervision& what) { Supervisor(std::move(run), what).work(); }

}  // namespace weightmap::cli::snapshot
