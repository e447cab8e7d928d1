// A command that this process starts, waits for, and ends with all that it has started.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tools/run/process_tree.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::start {

class Spawning;

class CommandProcess {
 public:
  // Where what it writes to standard output goes; with `nothing` standard error goes there, too.
  enum class Output : bool { standard_error, nothing };

  // Runs a command in a process group of its own. Fails with io if it cannot be run.
  static Result<CommandProcess> start(std::vector<std::string> words, Output output);
  // The same with its standard output there, nothing to read, and the standard error of this
  // process.
  static Result<CommandProcess> start_into(std::vector<std::string> words,
                                           const Descriptor& output);

  // The same with its standard error there, and its standard output on that of this process.
  static Result<CommandProcess> start_telling(std::vector<std::string> words,
                                              const Descriptor& error);

  CommandProcess(CommandProcess&& other) noexcept;
  CommandProcess& operator=(CommandProcess&&) = delete;
  ~CommandProcess();  // kills the group unless it was waited for

  ProcessTree& processes() noexcept { return processes_; }
  // Waits for the command. Returns its exit status, 128 + the signal if one ended it.
  int wait() noexcept;
  // Does the same after SIGTERM to the group, and SIGKILL if the command has not ended in ten
  // seconds or a signal comes to this process.
  int end() noexcept;

 private:
  static Result<CommandProcess> run(std::vector<std::string> words, const Spawning& spawning);
  explicit CommandProcess(pid_t process) : process_(process), processes_(process) {}

  pid_t process_;  // -1: waited for
  ProcessTree processes_;
};

}  // namespace weightmap::cli::start
