#include "tools/run/command_process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include "tools/support/text.hpp"

namespace weightmap::cli::start {

class Spawning {
 public:
  Spawning() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    sigset_t signals;  // that the tool ignores and the command does not
    sigemptyset(&signals);
    for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&signals, signal);
    ::posix_spawnattr_setsigdefault(&attributes_, &signals);
  }
  Spawning(const Spawning&) = delete;
  Spawning& operator=(const Spawning&) = delete;
  ~Spawning() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }

  void redirect(CommandProcess::Output output) {
    if (output == CommandProcess::Output::nothing)
      ::posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, STDERR_FILENO, STDOUT_FILENO);
  }
  void redirect(const Descriptor& output) {
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, output.get(), STDOUT_FILENO);
  }

  void redirect_error(const Descriptor& error) {
    redirect(CommandProcess::Output::standard_error);
    ::posix_spawn_file_actions_adddup2(&actions_, error.get(), STDERR_FILENO);
  }

  // Returns errno.
  int spawn(const std::vector<char*>& command, pid_t& process) const {
    return ::posix_spawnp(&process, command[0], &actions_, &attributes_, command.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

namespace {

constexpr int time_to_end = 10'000;  // milliseconds

}  // namespace

Result<CommandProcess> CommandProcess::start(std::vector<std::string> words, Output output) {
  Spawning spawning;
  spawning.redirect(output);
  return run(std::move(words), spawning);
}

Result<CommandProcess> CommandProcess::start_into(std::vector<std::string> words,
                                                  const Descriptor& output) {
  Spawning spawning;
  spawning.redirect(output);
  return run(std::move(words), spawning);
}

Result<CommandProcess> CommandProcess::start_telling(std::vector<std::string> words,
                                                     const Descriptor& error) {
  Spawning spawning;
  spawning.redirect_error(error);
  return run(std::move(words), spawning);
}

Result<CommandProcess> CommandProcess::run(std::vector<std::string> words,
                                           const Spawning& spawning) {
  std::vector<char*> command;
  for (std::string& word : words) command.push_back(word.data());
  command.push_back(nullptr);
  pid_t process = -1;
  if (const int error = spawning.spawn(command, process); error != 0)
    return failure(ErrorCode::io, "cannot run " + printable(words.front()) + ": " +
                                      std::generic_category().message(error));
  return CommandProcess(process);
}

CommandProcess::CommandProcess(CommandProcess&& other) noexcept
    : process_(std::exchange(other.process_, -1)), processes_(std::move(other.processes_)) {}

CommandProcess::~CommandProcess() {
  if (process_ <= 0) return;
  ::kill(-process_, SIGKILL);
  wait();
}

int CommandProcess::wait() noexcept {
  const pid_t process = std::exchange(process_, -1);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int CommandProcess::end() noexcept {
  ::kill(-process_, SIGTERM);
  if (!processes_.wait_for_end(time_to_end)) ::kill(-process_, SIGKILL);
  return wait();
}

}  // namespace weightmap::cli::start
