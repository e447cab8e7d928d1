// Runs something in a child process and says how that ended.
#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

namespace weightmap::test {

// Its function answers the exit code. It writes no core file.
template <class Function>
pid_t start_child(const Function& function) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child != 0) return child;
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::_exit(function());
}

// Waits for it: "exit 3", "signal 7".
inline std::string end_of(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit " + std::to_string(WEXITSTATUS(status));
}

// What it writes to standard error, and then its end.
template <class Function>
std::string said_and_end_of(const Function& function) {
  std::array<int, 2> pipe;
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = start_child([&] {
    ::dup2(pipe[1], STDERR_FILENO);
    return function();
  });
  ::close(pipe[1]);
  std::string said;
  std::array<char, 4096> buffer;
  for (ssize_t count; (count = ::read(pipe[0], buffer.data(), buffer.size())) > 0;)
    said.append(buffer.data(), static_cast<std::size_t>(count));
  ::close(pipe[0]);
  return said + end_of(child);
}

template <class Function>
std::string in_child(const Function& function) {
  return end_of(start_child(function));
}

}  // namespace weightmap::test
