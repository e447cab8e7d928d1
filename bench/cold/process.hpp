// Fresh processes: started, listened to, waited for.
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
  int exit_code = 0;  // 128 + the signal that ended it
  std::string output;
  std::string errors;
};

// Why a process that did not end with 0 did so: the last line of its errors, or its exit code.
std::string failure_text(const Finished& finished);

// One child process. Its standard streams are pipes to here; it is killed if this process dies.
class Process {
 public:
  enum class Traced : bool { no, yes };

  // `command` is a program, looked up in PATH, and its arguments. A traced one stops at its exec
  // and is to be continued with ptrace. Fails with io if it cannot be started.
  static Result<Process> start(const std::vector<std::string>& command, Traced traced = Traced::no);

  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();  // kills it, if it still runs, and waits

  pid_t pid() const noexcept { return pid_; }

  // Waits for the next line of its standard output. False if it closed that instead.
  Result<bool> wait_for_line(std::string_view line);
  // Writes to its standard input. That nobody reads it is no failure.
  void write(std::string_view text) noexcept;
  // Waits for its end. Fails with io if interrupted(), as does wait_for_line().
  Result<Finished> finish();
  // The same after somebody else has waited for it.
  Result<Finished> finish(int wait_status);

 private:
  Process(pid_t pid, Descriptor input, Descriptor output, Descriptor errors) noexcept
      : pid_(pid), input_(std::move(input)), streams_{std::move(output), std::move(errors)} {}
  // Waits for bytes of either stream. False once both are closed.
  Result<bool> listen();
  // Listens until then.
  Result<void> drain();

  pid_t pid_;  // -1: waited for
  Descriptor input_;
  std::array<Descriptor, 2> streams_;  // its standard output and errors; -1: closed
  std::array<std::string, 2> texts_;
};

// Starts, and waits for the end.
Result<Finished> run_process(const std::vector<std::string>& command);

}  // namespace weightmap::cli::bench
