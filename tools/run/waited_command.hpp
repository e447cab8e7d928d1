// A command below this process, which waits for it and for what goes on beside it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::cli::start {

// Returns the exit status of a command that has ended so, as waitpid() tells it, or ends this
// process by the signal that ended the command.
int end_as(int wait_status);

// Runs the command as a child, which begins once `work` calls its second argument, and `work` in
// this process. Returns the exit status of the command once both are over, and ends by the signal
// by which the command did. Passes on signals that processes have sent; those of the terminal reach
// the command by themselves.
Result<int> run_and_wait(
    const std::vector<std::string>& command,
    const std::function<void(pid_t command, const std::function<void()>& go_on)>& work);

}  // namespace weightmap::cli::start
