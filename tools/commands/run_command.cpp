#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/options/ready_option.hpp"
#include "tools/run/background.hpp"
#include "tools/run/named_models.hpp"
#include "tools/run/plan_store.hpp"
#include "tools/run/start_companion.hpp"
#include "tools/run/timeline_page.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

namespace fs = std::filesystem;

// As shells have them.
constexpr int exit_not_found = 127;
constexpr int exit_not_executable = 126;

struct RunOptions {
  std::vector<std::string> models;
  std::string ready;
  std::string plan;
  std::string timeline;
  bool learn = false;
  bool show_plan = false;
  bool verbose = false;
  std::vector<std::string> command;
};

// Returns the path that execvp() would run; empty if there is none.
fs::path find_program(const std::string& name) {
  std::error_code error;
  if (name.find('/') != std::string::npos) return fs::absolute(name, error);
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/bin:/usr/bin" : path;
  while (true) {
    const std::size_t colon = rest.find(':');
    const fs::path program = fs::path(rest.substr(0, colon)) / name;
    if (::access(program.c_str(), X_OK) == 0 && !fs::is_directory(program, error))
      return fs::absolute(program, error);
    if (colon == std::string_view::npos) return {};
    rest.remove_prefix(colon + 1);
  }
}

Result<fs::path> plan_path_of(const RunOptions& options, const std::string& key) {
  std::error_code error;
  if (!options.plan.empty()) return fs::absolute(options.plan, error);
  return start::plan_path(key);
}

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

// What is there under a given name, whatever it is: its faults are told when it is opened.
fs::path given_model(const std::string& name) {
  std::error_code error;
  return fs::exists(name, error) ? fs::absolute(name, error) : start::model_at(name);
}

bool may_have_plan(const RunOptions& options, const Result<fs::path>& path) {
  std::error_code error;
  return path && !options.learn && fs::exists(*path, error);
}

// What is wrong with a plan is a remark; without one, the start is learned.
start::CompanionTask task_for(const RunOptions& options, const std::string& key,
                              const Result<fs::path>& path, const std::vector<char*>& command) {
  start::CompanionTask task;
  task.key = key;
  task.speaks = options.verbose;
  task.program = command.front();
  if (!options.timeline.empty()) task.timeline = fs::absolute(options.timeline);
  if (!options.ready.empty()) task.ready = start::parse_ready(options.ready).value();
  if (!path) {
    task.remarks.push_back(path.error().message);
  } else {
    task.plan_path = *path;
    task.is_plan_given = !options.plan.empty();
    Result<start::StartPlan> plan = start::load_plan(*path);
    const bool is_none = !plan && plan.error().code == ErrorCode::not_found;
    if (!plan && !is_none)
      task.remarks.push_back(printable(path->native()) + ": " + to_string(plan.error()));
    if (plan) task.plan = std::move(*plan);
    task.learns = !task.plan || options.learn;
  }
  for (const std::string& model : options.models) {
    const fs::path found = given_model(model);
    if (found.empty())
      task.remarks.push_back("--model " + printable(model) +
                             " is neither there nor in the cache of the hub");
    else
      task.models.push_back(found);
  }
  const std::span<char* const> arguments(command.data() + 1, command.size() - 2);
  if (options.models.empty()) task.models = start::named_models(arguments, environ);
  return task;
}

int become(const std::vector<char*>& command) {
  restore_signals();
  ::execvp(command[0], command.data());
  const int error = errno;
  std::fprintf(stderr, "weightmap: cannot run %s: %s\n", printable(command[0]).c_str(),
               std::strerror(error));
  return error == ENOENT ? exit_not_found : exit_not_executable;
}

Result<int> run_command(Output& out, RunOptions& options) {
  std::vector<char*> command;
  for (std::string& word : options.command) command.push_back(word.data());
  command.push_back(nullptr);
  const fs::path program = find_program(options.command.front());
  if (program.empty()) return become(command);
  const std::string key =
      start::start_key(program, std::span<char* const>(command).first(command.size() - 1));
  if (options.show_plan) {
    TRY_ASSIGN(const fs::path path, plan_path_of(options, key));
    return show_plan(out, path);
  }
  const auto accompany = [&](pid_t process, const std::function<void()>& go_on) {
    const Result<fs::path> path = plan_path_of(options, key);
    // The command waits for who has to see all of it, and not for a plan to be parsed.
    if (options.timeline.empty() && may_have_plan(options, path)) go_on();
    start::accompany(process, task_for(options, key, path, command), go_on);
  };
  const bool speaks = options.verbose || !options.timeline.empty();
  const bool runs = start::run_in_background(speaks, accompany);
  if (!runs && speaks)
    std::fprintf(stderr, "weightmap run: no process for reading: %s\n", std::strerror(errno));
  return become(command);
}

}  // namespace

void add_run(CLI::App& app, Run& run) {
  auto options = std::make_shared<RunOptions>();
  CLI::App& command =
      *app.add_subcommand("run", "Start a command, while its code and its model are read ahead");
  command
      .add_option(
          "--model", options->models,
          "A file or folder of weights, or org/name in the hub's cache; otherwise what the\n"
          "command's words and variables with MODEL in their name say")
      ->allow_extra_args(false)
      ->type_name("MODEL");
  add_ready_option(command, options->ready);
  command
      .add_option("--plan", options->plan, "Keep what was learned here, not in the cache folder")
      ->type_name("FILE");
  command
      .add_option("--timeline", options->timeline,
                  "Draw the start here: what it did when, as .html or .svg")
      ->check([](const std::string& name) {
        return start::is_timeline_name(name)
                   ? std::string()
                   : "must end in .html or .svg, not \"" + printable(name) + "\"";
      })
      ->type_name("FILE");
  command.add_flag("--learn", options->learn, "Learn this start again");
  command.add_flag("--show-plan", options->show_plan,
                   "Print what was learned of this command, as JSON, and run nothing");
  command.add_flag(
      "-v,--verbose", options->verbose,
      "Say on standard error what was read, how long the command waited, and for what");
  command.add_option("COMMAND", options->command, "What to run, with its arguments")
      ->required()
      ->type_name("");
  command.footer(
      "The command has this process's id, terminal and exit status; beside it a process reads "
      "what\n"
      "the start before used, code first, and then the weights. It ends by itself, and fails "
      "nothing.\n"
      "Examples:\n"
      "  weightmap run -- python -m vllm.entrypoints.openai.api_server --model org/name\n"
      "  weightmap run --ready http://localhost:8000/health -v -- ./serve model.gguf");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_command(out, *options); }; });
}

}  // namespace weightmap::cli
