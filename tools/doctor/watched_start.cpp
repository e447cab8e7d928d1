#include "tools/doctor/watched_start.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/run/named_models.hpp"
#include "tools/run/opened_files.hpp"
#include "tools/run/process_tree.hpp"
#include "tools/run/start_recorder.hpp"
#include "tools/support/interruptible.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::doctor {
namespace {

constexpr int patience = 10'000;         // milliseconds
constexpr int sample_every = 100;        // milliseconds
constexpr unsigned readiness_every = 2;  // samples

// Of what the tool itself ignores and the command does not.
void restore_signals(posix_spawnattr_t& attributes) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&signals, signal);
  ::posix_spawnattr_setsigdefault(&attributes, &signals);
}

Result<pid_t> run(const std::vector<char*>& command) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  restore_signals(attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  pid_t process = -1;
  const int error =
      ::posix_spawnp(&process, command[0], &actions, &attributes, command.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return failure(ErrorCode::io, "cannot run " + printable(command[0]) + ": " +
                                      std::generic_category().message(error));
  return process;
}

int wait_for(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::vector<std::string> places_of(const std::vector<char*>& command) {
  std::vector<std::string> models;
  const std::span<char* const> arguments(command.data() + 1, command.size() - 2);
  for (const std::filesystem::path& model : start::named_models(arguments, environ))
    models.push_back(model.native());
  return start::likely_places(models);
}

// Returns whether the command has ended; otherwise its start is over, or this was interrupted.
bool watch(start::ProcessTree& processes, start::StartRecorder& recorder,
           start::Readiness& readiness) {
  for (unsigned samples = 1; !interrupted(); ++samples) {
    if (processes.wait_for_end(sample_every)) return true;
    processes.update();
    recorder.look(processes);
    if (samples % readiness_every == 0 && readiness.is_over(recorder.activity())) return false;
  }
  return false;
}

// A second signal to this process ends the patience.
void end(const start::ProcessTree& processes) {
  ::kill(-processes.root(), SIGTERM);
  if (!processes.wait_for_end(patience)) ::kill(-processes.root(), SIGKILL);
}

}  // namespace

Result<WatchedStart> watch_start(std::vector<std::string> words, start::Ready ready) {
  std::vector<char*> command;
  for (std::string& word : words) command.push_back(word.data());
  command.push_back(nullptr);
  const Interruptible interruptible;
  start::StartRecorder recorder(places_of(command));
  start::Readiness readiness(std::move(ready));
  TRY_ASSIGN(const pid_t process, run(command));
  start::ProcessTree processes(process);
  const bool has_ended = watch(processes, recorder, readiness);
  const auto now = start::Readiness::Clock::now();
  if (!has_ended) end(processes);
  const int status = wait_for(process);
  TRY(go_on());
  return WatchedStart{
      recorder.timeline(words.front(), has_ended ? now : readiness.end(now), has_ended),
      has_ended ? std::optional(status) : std::nullopt};
}

}  // namespace weightmap::cli::doctor
