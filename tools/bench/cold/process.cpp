#include "tools/bench/cold/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "runtime/base/try.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

struct Pipe {
  Descriptor read;
  Descriptor write;
};

struct Pipes {
  Pipe input, output, errors;
  Pipe failure;  // errno, if there was no exec

  bool open() noexcept {
    for (Pipe* const one : {&input, &output, &errors, &failure}) {
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) != 0) return false;
      *one = {Descriptor(ends[0]), Descriptor(ends[1])};
    }
    return true;
  }
};

// Runs in the child after fork, where only async-signal-safe calls are allowed.
[[noreturn]] void become(char* const* command, Pipes& pipes, bool traced) noexcept {
  ::dup2(pipes.input.read.get(), STDIN_FILENO);
  ::dup2(pipes.output.write.get(), STDOUT_FILENO);
  ::dup2(pipes.errors.write.get(), STDERR_FILENO);
  ::signal(SIGPIPE, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!traced || ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0) ::execvp(command[0], command);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(pipes.failure.write.get(), &error, sizeof error);
  ::_exit(127);
}

tl::unexpected<Error> cannot_start(const std::string& program, int error) {
  return tl::unexpected<Error>(
      {ErrorCode::io,
       "cannot run " + printable(program) + ": " + std::generic_category().message(error),
       Error::no_offset,
       {},
       error});
}

int wait_for(pid_t pid) noexcept {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

int exit_code(int wait_status) noexcept {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace

std::string failure_text(const Finished& finished) {
  std::string text = finished.errors;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const std::size_t line = text.rfind('\n');
  if (line != std::string::npos) text.erase(0, line + 1);
  if (!text.empty()) return printable(text);
  return finished.exit_code > 128 ? "ended by signal " + std::to_string(finished.exit_code - 128)
                                  : "exit code " + std::to_string(finished.exit_code);
}

Result<Process> Process::start(const std::vector<std::string>& command, Traced traced) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  Pipes pipes;
  if (!pipes.open()) return cannot_start(command[0], errno);
  const pid_t pid = ::fork();
  if (pid < 0) return cannot_start(command[0], errno);
  if (pid == 0) become(words.data(), pipes, traced == Traced::yes);

  pipes.failure.write = Descriptor();
  Process process(pid, std::move(pipes.input.write), std::move(pipes.output.read),
                  std::move(pipes.errors.read));
  int error = 0;
  ssize_t got = 0;
  while ((got = ::read(pipes.failure.read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got == sizeof error) return cannot_start(command[0], error);
  return process;
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::move(other.input_)),
      streams_(std::move(other.streams_)),
      texts_(std::move(other.texts_)) {}

Process::~Process() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  wait_for(pid_);
}

Result<bool> Process::listen() {
  pollfd polled[2] = {{streams_[0].get(), POLLIN, 0}, {streams_[1].get(), POLLIN, 0}};
  if (polled[0].fd < 0 && polled[1].fd < 0) return false;
  // The timeout covers a signal that arrives just before.
  if (::poll(polled, 2, 100) < 0 && errno != EINTR)
    return failure(ErrorCode::io, "cannot wait: " + std::generic_category().message(errno));
  TRY(go_on());
  for (std::size_t i = 0; i < 2; ++i) {
    if (polled[i].fd < 0 || polled[i].revents == 0) continue;
    char bytes[4096];
    const ssize_t got = ::read(polled[i].fd, bytes, sizeof bytes);
    if (got > 0)
      texts_[i].append(bytes, static_cast<std::size_t>(got));
    else if (got == 0 || errno != EINTR)
      streams_[i] = Descriptor();
  }
  return true;
}

Result<bool> Process::wait_for_line(std::string_view line) {
  const std::string wanted = std::string(line) + "\n";
  for (;;) {
    if (texts_[0].starts_with(wanted)) {
      texts_[0].erase(0, wanted.size());
      return true;
    }
    if (streams_[0].get() < 0 || texts_[0].find('\n') != std::string::npos) return false;
    if (Result<bool> heard = listen(); !heard || !*heard) return heard;
  }
}

void Process::write(std::string_view text) noexcept {
  // main() ignores SIGPIPE.
  [[maybe_unused]] const ssize_t written = ::write(input_.get(), text.data(), text.size());
}

Result<void> Process::drain() {
  input_ = Descriptor();
  for (;;) {
    const Result<bool> heard = listen();
    if (!heard) return tl::unexpected<Error>(heard.error());
    if (!*heard) return {};
  }
}

Result<Finished> Process::finish() {
  TRY(drain());
  const int status = wait_for(std::exchange(pid_, -1));
  return Finished{exit_code(status), std::move(texts_[0]), std::move(texts_[1])};
}

Result<Finished> Process::finish(int wait_status) {
  pid_ = -1;
  TRY(drain());
  return Finished{exit_code(wait_status), std::move(texts_[0]), std::move(texts_[1])};
}

Result<Finished> run_process(const std::vector<std::string>& command) {
  TRY_ASSIGN(Process process, Process::start(command));
  return process.finish();
}

}  // namespace weightmap::cli::bench
