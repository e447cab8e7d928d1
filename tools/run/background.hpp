// A process beside the command that replaces this one.
#pragma once

#include <sys/types.h>

#include <functional>

namespace weightmap::cli::start {

// Runs `work` in a process that nobody has to wait for, with the id of this one, and returns once
// `work` calls its second argument, or has ended. The process has no terminal and none of this
// one's open files, but for standard error if `speaks`. It is no child of this process, so that the
// command gets no signal and no exit status that it does not expect: an init process, which gets
// all orphans, has it as a child that announces nothing (clone(2): without an exit signal).
// Returns false if the system makes no process.
bool run_in_background(
    bool speaks,
    const std::function<void(pid_t command, const std::function<void()>& go_on)>& work);

}  // namespace weightmap::cli::start
