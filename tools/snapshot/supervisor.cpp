#include "tools/snapshot/supervisor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/run/program.hpp"
#include "tools/snapshot/criu.hpp"
#include "tools/snapshot/criu_log.hpp"
#include "tools/snapshot/meeting_point.hpp"
#include "tools/snapshot/messages.hpp"
#include "tools/snapshot/namespaces.hpp"
#include "tools/snapshot/output_copy.hpp"
#include "tools/snapshot/shared_memory.hpp"
#include "tools/snapshot/without_io_uring.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Where criu finds the pipes of a restored command.
constexpr int first_output = 100;
constexpr int not_prepared = 1;
// A restore that takes longer hangs: so long, and a second for each piece of its image.
constexpr std::chrono::seconds patience{15};
constexpr std::uint64_t bytes_a_second = 20'000'000;

class Supervisor {
 public:
  Supervisor(Descriptor run, const Supervision& what) : run_(std::move(run)), what_(what) {}

  void work() {
    if (const Result<void> prepared = prepare(); !prepared) {
      report(Report::unprepared, prepared.error().message);
      return;
    }
    report(Report::prepared);
    while (!has_ended_) {
      wait();
      for (OutputCopy* const copy : {&output_, &error_output_})
        if ((copy == &output_ ? polled_[2] : polled_[3]).revents != 0) copy->step();
      if (polled_[0].revents != 0) take_order();
      if (polled_[1].revents != 0) take_signals();
      if (criu_ > 0 && deadline_ && Clock::now() > *deadline_) give_up_restore();
    }
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
    TRY(mount_shared_memory());
    TRY(set_next_id(2));  // of criu, where it restores the command
    TRY(output_.open());
    return error_output_.open();
  }

  void wait() {
    polled_ = {pollfd{run_.get(), POLLIN, 0}, pollfd{signals_.get(), POLLIN, 0}, output_.wanted(),
               error_output_.wanted()};
    ::poll(polled_.data(), polled_.size(), deadline_ ? 100 : -1);
  }

  // --- orders ---

  void take_order() {
    Order order;
    const ssize_t got = ::recv(run_.get(), &order, sizeof order, 0);
    if (got == 0) run_ = Descriptor();  // the process that gives orders has ended
    if (got != static_cast<ssize_t>(sizeof order)) return;
    order_ = order;
    switch (order.kind) {
      case Order::start:
        return start();
      case Order::restore:
        return restore();
      case Order::dump:
        return dump();
      case Order::no_dump:
        return static_cast<void>(answer_original(what_.meeting_point));
    }
  }

  void start() {
    if (Result<void> set = set_next_id(command_id); !set) say(set.error().message);
    command_ = fork_with([this] {
      ::setsid();
      ::setenv(meeting_variable, what_.meeting_point.c_str(), 1);
      const int nothing = ::open("/dev/null", O_RDONLY);
      ::dup2(nothing, STDIN_FILENO);
      ::dup2(output_.input(), STDOUT_FILENO);
      ::dup2(error_output_.input(), STDERR_FILENO);
      start::close_all_above(STDERR_FILENO);  // what else is open lies outside of the image
      ::sigprocmask(SIG_SETMASK, &what_.signals, nullptr);
      forbid_io_uring();
      return start::become(what_.command);
    });
    report(Report::started);
    deliver();
  }

  void restore() {
    const fs::path image = order_.folder.data();
    if (Result<void> told = answer_restored(what_.meeting_point, environ); !told)
      return start_instead(to_string(told.error()));
    deadline_ = Clock::now() + patience + std::chrono::seconds(order_.image_bytes / bytes_a_second);
    run_criu(restore_words(what_.criu, image, what_.meeting_point, order_.pipes, first_output,
                           order_.keeps_connections),
             [&image] {
               const pid_t unpacking =
                   fork_with([&image] { return start::become(unpacking_words(image)); });
               int status = 0;
               return ::waitpid(unpacking, &status, 0) > 0 && status == 0;
             });
  }

  void dump() {
    const std::string daemon = orphans();
    if (!daemon.empty()) return not_dumped(daemon);
    const Result<fs::path> script = write_saving_script(what_.meeting_point);
    if (!script) return not_dumped(to_string(script.error()));
    const fs::path image = order_.folder.data();
    run_criu(dump_words(what_.criu, command_, image, log(), *script, order_.keeps_connections),
             [&image] {
               ::setenv(archive_variable, archive_in(image).c_str(), 1);
               return true;
             });
  }

  fs::path log() const {
    return what_.meeting_point / (order_.kind == Order::dump ? "dump.log" : "restore.log");
  }

  // `prepare` is called in its process; false if there is nothing to run then.
  template <class Preparation>
  void run_criu(std::vector<std::string> words, const Preparation& prepare) {
    criu_ = fork_with([this, &words, &prepare] {
      if (!prepare()) return not_prepared;
      const int nothing = ::open("/dev/null", O_RDWR);
      for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, each);
      ::dup2(output_.input(), first_output);
      ::dup2(error_output_.input(), first_output + 1);
      sigset_t none;
      sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
      return start::become(std::move(words));
    });
  }

  template <class Work>
  static pid_t fork_with(const Work& work) {
    const pid_t made = ::fork();
    if (made == 0) ::_exit(work());
    return made;
  }

  // True for what weightmap.prefetch() has started, which a restored command needs no more.
  static bool reads_ahead(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/cmdline");
    std::string program, command;
    std::getline(file, program, '\0');
    std::getline(file, command, '\0');
    return fs::path(program).filename() == "weightmap" && command == "read-ahead";
  }

  // A sentence if a process is no descendant of the command any more, so that an image lacks it.
  std::string orphans() const {
    std::ifstream file("/proc/1/task/1/children");
    for (pid_t child = 0; file >> child;)
      if (child != command_ && !reads_ahead(child))
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
    if (command_ <= 0) return;
    for (const int signal : std::exchange(pending_, {})) ::kill(command_, signal);
  }

  void reap() {
    int status = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended == std::exchange(criu_, criu_ == ended ? 0 : criu_))
        criu_ended(status);
      else if (ended == command_ || (command_ == 0 && ended == order_.root))
        command_status_ = status;
    }
    if (command_status_ && criu_ == 0) end(*command_status_);
  }

  void criu_ended(int status) {
    deadline_.reset();
    const bool is_good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (order_.kind == Order::restore)
      is_good ? restored() : start_instead(reason_of("the restore"));
    else
      is_good ? dumped() : not_dumped(reason_of("the dump"));
  }

  std::string reason_of(const char* what) const {
    const std::string text = first_error_in(log());
    return text.empty() ? what_.criu.native() + ": " + what + " failed without a word"
                        : "criu: " + text;
  }

  void restored() {
    command_ = order_.root;
    report(Report::restored);
    deliver();
  }

  void give_up_restore() {
    ::kill(-1, SIGKILL);
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
    criu_ = 0;
    deadline_.reset();
    start_instead("the restore hangs");
  }

  // What a failed restore has left is ended first, so that its ids and ports are free.
  void start_instead(const std::string& why) {
    ::kill(-1, SIGKILL);
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
    command_status_.reset();
    say("the snapshot was not restored: " + why);
    Report failed = made(Report::not_restored, why);
    failed.is_lasting = why.find("Address already in use") == std::string::npos;
    send(failed);
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
    has_ended_ = true;
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
  std::array<pollfd, 4> polled_{};
  Order order_;
  pid_t command_ = 0, criu_ = 0;  // 0: none runs
  std::vector<int> pending_;      // signals
  std::optional<int> command_status_;
  std::optional<Clock::time_point> deadline_;  // of a restore
  bool has_ended_ = false;
};

}  // namespace

void supervise(Descriptor run, const Supervision& what) { Supervisor(std::move(run), what).work(); }

}  // namespace weightmap::cli::snapshot
