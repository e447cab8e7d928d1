// Starts fresh processes, reads their output, and waits for them.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/support/descriptor.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

struct Finished {
  int exit_code = 0;  // 128 + the signal if one ended it
  std::string output;
  std::string errors;
};

// Returns the reason for a failure: the last line of the process's errors, or its exit code.
std::string failure_text(const Finished& finished);

// A child process whose standard streams are pipes to this process; it dies with this process.
class Process {
 public:
  enum class Traced : bool { no, yes };

  // `command` is a program, looked up in PATH, and its arguments. A traced one stops at its exec,
  // to be continued with ptrace. Fails with io if it cannot be started.
  static Result<Process> start(const std::vector<std::string>& command, Traced traced = Traced::no);

  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();  // kills it if it still runs, and waits

  pid_t pid() const noexcept { return pid_; }

  // Waits for the next line of its standard output. Returns false if that was closed instead.
  Result<bool> wait_for_line(std::string_view line);
  // Writes to its standard input. Ignores a closed pipe.
  void write(std::string_view text) noexcept;
  // Waits for its end. Like wait_for_line(), it fails with io if interrupted().
  Result<Finished> finish();
  // Does the same after another wait has returned the status.
  Result<Finished> finish(int wait_status);

 private:
  Process(pid_t pid, Descriptor input, Descriptor output, Descriptor errors) noexcept
      : pid_(pid), input_(std::move(input)), streams_{std::move(output), std::move(errors)} {}
  // Waits for bytes of either stream. Returns false once both are closed.
  Result<bool> listen();
  // Reads both streams to their ends.
  Result<void> drain();

  pid_t pid_;  // -1: waited for
  Descriptor input_;
  std::array<Descriptor, 2> streams_;  // its standard output and errors; -1: closed
  std::array<std::string, 2> texts_;
};

// Starts a process, and waits for its end.
Result<Finished> run_process(const std::vector<std::string>& command);

}  // namespace weightmap::cli::bench
