#include "tools/doctor/watched_start.hpp"

#include <unistd.h>

#include <span>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/run/command_process.hpp"
#include "tools/run/named_models.hpp"
#include "tools/run/opened_files.hpp"
#include "tools/run/start_recorder.hpp"
#include "tools/support/signals.hpp"

namespace weightmap::cli::doctor {
namespace {

using start::CommandProcess;

constexpr int sample_every = 100;        // milliseconds
constexpr unsigned readiness_every = 2;  // samples

std::vector<std::string> places_of(std::span<const std::string> command) {
  std::vector<std::string> models;
  for (const std::filesystem::path& model : start::named_models(command.subspan(1), environ))
    models.push_back(model.native());
  return start::likely_places(models);
}

// Returns whether the command has ended; otherwise its start is over, or this was interrupted.
bool watch(start::ProcessTree& processes, start::StartRecorder& recorder,
           start::Readiness& readiness) {
  for (unsigned samples = 1; !interrupted(); ++samples) {
    if (processes.wait_for_end(sample_every)) return true;
    processes.update();
    recorder.look(processes);
    if (samples % readiness_every == 0 && readiness.is_over(recorder.activity())) return false;
  }
  return false;
}

}  // namespace

Result<WatchedStart> watch_start(const std::vector<std::string>& command, start::Ready ready) {
  const Interruptible interruptible;
  start::StartRecorder recorder(places_of(command));
  start::Readiness readiness(std::move(ready));
  TRY_ASSIGN(CommandProcess process,
             CommandProcess::start(command, CommandProcess::Output::standard_error));
  const bool has_ended = watch(process.processes(), recorder, readiness);
  const auto now = start::Readiness::Clock::now();
  const int status = has_ended ? process.wait() : process.end();
  TRY(go_on());
  return WatchedStart{
      recorder.timeline(command.front(), has_ended ? now : readiness.end(now), has_ended),
      has_ended ? std::optional(status) : std::nullopt};
}

}  // namespace weightmap::cli::doctor
