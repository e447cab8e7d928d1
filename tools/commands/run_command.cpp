#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/options/ready_option.hpp"
#include "tools/run/background.hpp"
#include "tools/run/learning_mark.hpp"
#include "tools/run/plan_store.hpp"
#include "tools/run/program.hpp"
#include "tools/run/start_companion.hpp"
#include "tools/run/start_task.hpp"
#include "tools/run/timeline_page.hpp"
#include "tools/run/waited_command.hpp"
#include "tools/snapshot/snapshot_start.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

namespace fs = std::filesystem;

struct RunOptions {
  start::StartOptions start;
  bool show_plan = false;
  std::string snapshots;  // the folder of snapshots; empty: none
  std::vector<std::string> command;
};

Result<int> show_plan(Output& out, const fs::path& path) {
  Result<start::StartPlan> plan = start::load_plan(path);
  if (!plan) {
    if (plan.error().code == ErrorCode::not_found)
      plan.error().message = "there is no plan of this start";
    plan.error().file = printable(path.native());
    return tl::unexpected<Error>(plan.error());
  }
  out.write(start::describe(*plan).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  return exit_good;
}

bool may_have_plan(const start::StartOptions& options, const Result<fs::path>& path) {
  std::error_code error;
  return path && !options.learns_anew && fs::exists(*path, error);
}

Result<int> run_command(Output& out, const RunOptions& options) {
  const start::StartCommand what{start::find_program(options.command.front()), options.command};
  if (what.program.empty()) return start::become(options.command);
  if (options.show_plan) {
    TRY_ASSIGN(const fs::path path, start::plan_path_of(options.start, what.key()));
    return show_plan(out, path);
  }
  if (!options.snapshots.empty())
    if (const std::optional<int> status =
            snapshot::run_with_snapshot(options.start, options.snapshots, what))
      return *status;
  const auto accompany = [&](pid_t process, const std::function<void()>& go_on) {
    start::probe_mounts(options.start, what);
    const Result<fs::path> path = start::plan_path_of(options.start, what.key());
    // The command waits for who has to see all of it, and not for a plan to be parsed.
    if (options.start.timeline.empty() && may_have_plan(options.start, path)) go_on();
    if (path) start::wait_until_learned(*path);
    start::accompany(process, start::task_for(options.start, what, path), go_on);
  };
  if (!options.start.timeline.empty()) return start::run_and_wait(options.command, accompany);
  const bool runs = start::run_in_background(options.start.speaks, accompany);
  if (!runs && options.start.speaks)
    std::fprintf(stderr, "weightmap run: no process for reading: %s\n", std::strerror(errno));
  return start::become(options.command);
}

}  // namespace

void add_run(CLI::App& app, Run& run) {
  auto options = std::make_shared<RunOptions>();
  CLI::App& command =
      *app.add_subcommand("run", "Start a command, while its code and its model are read ahead");
  command
      .add_option(
          "--model", options->start.models,
          "A file or folder of weights, or org/name in the hub's cache; otherwise what the\n"
          "command's words and variables with MODEL in their name say")
      ->allow_extra_args(false)
      ->type_name("MODEL");
  add_ready_option(command, options->start.ready);
  command
      .add_option("--plan", options->start.plan,
                  "Keep what was learned here, not in the cache folder")
      ->type_name("FILE");
  command
      .add_option("--timeline", options->start.timeline,
                  "Draw the start here: what it did when, as .html. The command runs below\n"
                  "this process, which ends once both are done")
      ->check([](const std::string& name) {
        return start::is_timeline_name(name) ? std::string()
                                             : "must end in .html, not \"" + printable(name) + "\"";
      })
      ->type_name("FILE");
  command
      .add_option("--snapshot", options->snapshots,
                  "Restore the command from its snapshot in this folder; where there is none that\n"
                  "fits, start it, and make one when the start is over. Needs criu and root")
      ->check([](const std::string& folder) {
        return folder.empty() ? std::string("must name a folder") : std::string();
      })
      ->type_name("DIR");
  command.add_flag("--learn", options->start.learns_anew, "Learn this start again");
  command.add_flag("--show-plan", options->show_plan,
                   "Print what was learned of this command, as JSON, and run nothing");
  command.add_flag(
      "-v,--verbose", options->start.speaks,
      "Say on standard error what was read, how long the command waited, and for what");
  command.add_option("COMMAND", options->command, "What to run, with its arguments")
      ->required()
      ->type_name("");
  command.footer(
      "The command has this process's id, terminal and exit status; beside it a process reads "
      "what\n"
      "the start before used, code first, and then the weights. It ends by itself, and fails "
      "nothing.\n"
      "With --snapshot and --timeline the command runs below this process, which passes signals "
      "on,\n"
      "and with --snapshot its output.\n"
      "Examples:\n"
      "  weightmap run -- python -m vllm.entrypoints.openai.api_server --model org/name\n"
      "  weightmap run --ready http://localhost:8000/health -v -- ./serve model.gguf");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_command(out, *options); }; });
}

}  // namespace weightmap::cli
