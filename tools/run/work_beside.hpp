// A command, and the work that goes on beside it: in the background of the command that replaces
// this process, or in this process, which waits for the command.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::cli::start {

// Calls its second argument once the command may begin.
using WorkBeside = std::function<void(pid_t command, const std::function<void()>& go_on)>;

// Runs `work` in a process that nobody has to wait for, with the id of this one, and returns once
// `work` calls its second argument, or has ended. The process has no terminal and none of this
// one's open files, but for standard error if `speaks`. It is no child of this process, so that the
// command gets no signal and no exit status that it does not expect: an init process, which gets
// all orphans, has it as a child that announces nothing (clone(2): without an exit signal).
// Returns false if the system makes no process.
bool run_in_background(bool speaks, const WorkBeside& work);

// Returns the exit status of a command that has ended so, as waitpid() tells it, or ends this
// process by the signal that ended the command.
int end_as(int wait_status);

// Runs the command as a child, which begins once `work` calls its second argument, and `work` in
// this process. Returns the exit status of the command once both are over, and ends by the signal
// by which the command did. Passes on signals that processes have sent; those of the terminal reach
// the command by themselves.
Result<int> run_and_wait(const std::vector<std::string>& command, const WorkBeside& work);

}  // namespace weightmap::cli::start
