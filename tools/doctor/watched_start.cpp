#include "tools/doctor/watched_start.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/run/command_process.hpp"
#include "tools/run/named_models.hpp"
#include "tools/run/opened_files.hpp"
#include "tools/run/start_recorder.hpp"
#include "tools/support/descriptor.hpp"
#include "tools/support/signals.hpp"

namespace weightmap::cli::doctor {
namespace {

namespace fs = std::filesystem;
using start::CommandProcess;

constexpr int sample_every = 100;        // milliseconds
constexpr unsigned readiness_every = 2;  // samples
// What a pipe can hold until the next sample, if the system allows.
constexpr std::size_t pipe_bytes = std::size_t{1} << 20;
// As PYTHONPROFILEIMPORTTIME of python(1): like -X importtime, for all that a command runs.
constexpr const char* telling_variable = "PYTHONPROFILEIMPORTTIME";

std::vector<std::string> places_of(std::span<const std::string> command) {
  std::vector<std::string> models;
  for (const fs::path& model : start::named_models(command.subspan(1), environ))
    models.push_back(model.native());
  return start::likely_places(models);
}

using Look = std::function<void(const std::set<pid_t>& processes)>;

// Returns whether the command has ended; otherwise its start is over, or this was interrupted.
bool watch(start::ProcessTree& processes, start::StartRecorder& recorder,
           start::Readiness& readiness, const Look& look) {
  for (unsigned samples = 1; !interrupted(); ++samples) {
    if (processes.wait_for_end(sample_every)) return true;
    processes.update();
    recorder.look(processes);
    look(processes.members());
    if (samples % readiness_every == 0 && readiness.is_over(recorder.activity())) return false;
  }
  return false;
}

Result<WatchedStart> watch_process(const std::vector<std::string>& command, start::Ready ready,
                                   const std::function<Result<CommandProcess>()>& begin,
                                   const Look& look) {
  const Interruptible interruptible;
  start::StartRecorder recorder(places_of(command));
  start::Readiness readiness(std::move(ready));
  TRY_ASSIGN(CommandProcess process, begin());
  const bool has_ended = watch(process.processes(), recorder, readiness, look);
  const auto now = start::Readiness::Clock::now();
  const int status = has_ended ? process.wait() : process.end();
  TRY(go_on());
  return WatchedStart{
      recorder.timeline(command.front(), has_ended ? now : readiness.end(now), has_ended),
      has_ended ? std::optional(status) : std::nullopt};
}

// Of a program that this tool may look at.
std::string program_of(pid_t process) {
  std::error_code refused;
  return fs::read_symlink("/proc/" + std::to_string(process) + "/exe", refused).native();
}

// Standard error of a command, until it ends or is ended.
class ToldErrors {
 public:
  ToldErrors() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    reading_ = Descriptor(ends[0]);
    writing_ = Descriptor(ends[1]);
    ::fcntl(reading_.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(reading_.get(), F_SETPIPE_SZ, static_cast<int>(pipe_bytes));
  }

  // Its other end is closed here once the command has it.
  Result<CommandProcess> begin(const std::vector<std::string>& command) {
    if (reading_.get() < 0) return failure(ErrorCode::io, "no pipe can be made");
    ::setenv(telling_variable, "1", 1);
    Result<CommandProcess> process = CommandProcess::start_telling(command, writing_);
    ::unsetenv(telling_variable);
    writing_ = Descriptor();
    return process;
  }

  void take(ImportTimes& times) const {
    std::array<char, 65536> piece;
    // As much as the pipe holds: what outlives the command may write on and on.
    for (std::size_t taken = 0; taken < pipe_bytes; taken += piece.size()) {
      const ssize_t size = ::read(reading_.get(), piece.data(), piece.size());
      if (size <= 0) return;
      pass_on(times.take({piece.data(), static_cast<std::size_t>(size)}));
    }
  }

  static void pass_on(std::string_view text) {
    while (!text.empty()) {
      const ssize_t size = ::write(STDERR_FILENO, text.data(), text.size());
      if (size < 0 && errno != EINTR) return;
      text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    }
  }

 private:
  Descriptor reading_, writing_;
};

// A second start does not begin with what the first one has left.
Result<void> forget(const start::Ready& ready) {
  std::error_code none;
  if (const auto* file = std::get_if<start::ReadyFile>(&ready)) fs::remove(file->path, none);
  if (start::Readiness(ready).is_over(0))
    return failure(ErrorCode::io, "--ready holds before the second start has begun");
  return {};
}

}  // namespace

Result<WatchedStart> watch_start(const std::vector<std::string>& command, start::Ready ready) {
  const auto begin = [&] {
    return CommandProcess::start(command, CommandProcess::Output::standard_error);
  };
  return watch_process(command, std::move(ready), begin, [](const std::set<pid_t>&) {});
}

Result<WatchedImports> watch_imports(const std::vector<std::string>& command, start::Ready ready) {
  TRY(forget(ready));
  ToldErrors errors;
  WatchedImports imports;
  const auto look = [&](const std::set<pid_t>& processes) {
    errors.take(imports.times);
    for (auto at = processes.begin(); imports.python.empty() && at != processes.end(); ++at)
      if (const std::string program = program_of(*at);
          fs::path(program).filename().native().starts_with("python"))
        imports.python = program;
  };
  const auto begin = [&] { return errors.begin(command); };
  const Result<WatchedStart> start = watch_process(command, std::move(ready), begin, look);
  errors.take(imports.times);
  ToldErrors::pass_on(imports.times.take_rest());
  if (!start) return tl::unexpected<Error>(start.error());
  imports.exit_status = start->exit_status;
  return imports;
}

}  // namespace weightmap::cli::doctor
