// Programs, as execvp(3) finds and runs them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace weightmap::cli::start {

// Returns the path that execvp() would run, absolute; empty if there is none.
std::filesystem::path find_program(const std::string& name);

// Replaces this program by a command. Where that fails, says why on standard error, and returns the
// exit status that shells have for it: 127 if there is no such program, else 126.
int become(std::vector<std::string> command);

// Closes all descriptors with a greater number.
void close_all_above(int kept) noexcept;

}  // namespace weightmap::cli::start
