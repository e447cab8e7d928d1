#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/options/ready_option.hpp"
#include "tools/run/plan_store.hpp"
#include "tools/run/program.hpp"
#include "tools/run/start_companion.hpp"
#include "tools/run/start_task.hpp"
#include "tools/run/timeline_report.hpp"
#include "tools/run/work_beside.hpp"
#include "tools/snapshot/snapshot_list.hpp"
#include "tools/snapshot/snapshot_start.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "tools/template/template_list.hpp"
#include "tools/template/template_start.hpp"

namespace weightmap::cli {
namespace {

namespace fs = std::filesystem;

struct RunOptions {
  start::StartOptions start;
  bool show_plan = false;
  std::string snapshots;            // the folder of snapshots; empty: none
  std::uint64_t template_idle = 0;  // seconds after which an unused template ends; 0: none is made
  std::vector<std::string> command;
};

// What is asked of templates and of a folder of snapshots, in place of a start.
struct RunQuestion {
  bool lists_templates = false;
  bool ends_templates = false;
  std::string listed;                // the folder; of the five one is set
  std::string checked;               // the same
  std::vector<std::string> removed;  // the folder, and which
  bool json = false;

  bool is_asked() const noexcept {
    return lists_templates || ends_templates || !listed.empty() || !checked.empty() ||
           !removed.empty();
  }
};

Result<int> answer(Output& out, const RunQuestion& question) {
  if (question.lists_templates) {
    TRY(templates::list_templates(out, question.json));
    return exit_good;
  }
  if (question.ends_templates) {
    TRY(templates::end_templates(out, question.json));
    return exit_good;
  }
  if (!question.removed.empty()) {
    TRY(snapshot::remove_snapshots(out, question.removed[0], question.removed[1], question.json));
    return exit_good;
  }
  const bool checks = !question.checked.empty();
  TRY_ASSIGN(const bool all_good,
             snapshot::list_snapshots(out, checks ? question.checked : question.listed, checks,
                                      question.json));
  return checks && !all_good ? exit_failed : exit_good;
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
  if (options.template_idle != 0)
    if (const std::optional<int> status =
            templates::run_from_template(options.start, what, options.template_idle))
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

std::string check_folder(const std::string& folder) {
  return folder.empty() ? "must name a folder" : "";
}

void add_question(CLI::App& command, RunQuestion& question) {
  CLI::Option* const list =
      command
          .add_option("--list", question.listed,
                      "List the snapshots of this folder, and which of them a start would use")
          ->check(check_folder)
          ->type_name("DIR");
  CLI::Option* const check =
      command
          .add_option("--check", question.checked,
                      "The same, once the checksums of all files of the images are compared; the\n"
                      "exit status is 1 if there is one that a start would not use")
          ->check(check_folder)
          ->excludes(list)
          ->type_name("DIR");
  CLI::Option* const remove = command
                                  .add_option("--remove", question.removed,
                                              "Remove the snapshot whose key begins so, or all")
                                  ->expected(2)
                                  ->check(check_folder)
                                  ->excludes(list, check)
                                  ->type_name("DIR SNAPSHOT|all");
  CLI::Option* const templates = command.add_flag(
      "--list-templates", question.lists_templates,
      "List the templates of this user: their processes, their memory, and their commands");
  templates->excludes(list, check, remove);
  command
      .add_flag("--end-templates", question.ends_templates,
                "Have them take no further start; they end once no command is a fork of them")
      ->excludes(list, check, remove, templates);
  command.add_flag("--json", question.json, "Of these five: one JSON document on standard output");
}

}  // namespace

void add_run(CLI::App& app, Run& run) {
  auto options = std::make_shared<RunOptions>();
  auto question = std::make_shared<RunQuestion>();
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
  CLI::Option* const timeline =
      command
          .add_option("--timeline", options->start.timeline,
                      "Draw the start here: what it did when, as .html. The command runs below\n"
                      "this process, which ends once both are done")
          ->check([](const std::string& name) {
            return start::is_timeline_name(name)
                       ? std::string()
                       : "must end in .html, not \"" + printable(name) + "\"";
          })
          ->type_name("FILE");
  CLI::Option* const snapshot =
      command
          .add_option(
              "--snapshot", options->snapshots,
              "Restore the command from its snapshot in this folder; where there is none that\n"
              "fits, start it, and make one when the start is over. Needs criu and root")
          ->check(check_folder)
          ->type_name("DIR");
  // By a function: newer CLI11 (2.4) checks the 0 of a variable, too, where the flag is not given.
  command
      .add_flag_function(
          "--template{3600}",
          [options](std::int64_t seconds) {
            options->template_idle = static_cast<std::uint64_t>(seconds);
          },
          "Fork the command from its template, a process that an earlier start has left where\n"
          "it called weightmap.snapshot_here(); where there is none that fits, start it. With\n"
          "=SECONDS an unused template ends after so many; otherwise after an hour")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32))
      ->excludes(snapshot, timeline);
  command.add_flag("--learn", options->start.learns_anew, "Learn this start again");
  command.add_flag("--show-plan", options->show_plan,
                   "Print what was learned of this command, as JSON, and run nothing");
  command.add_flag(
      "-v,--verbose", options->start.speaks,
      "Say on standard error what was read, how long the command waited, and for what");
  add_question(command, *question);
  command.add_option("COMMAND", options->command, "What to run, with its arguments")->type_name("");
  command.footer(
      "The command has this process's id, terminal and exit status; beside it a process reads "
      "what\n"
      "the start before used, code first, and then the weights. It ends by itself, and fails "
      "nothing.\n"
      "With --snapshot and --timeline the command runs below this process, which passes signals "
      "on,\n"
      "and with --snapshot its output. A snapshot that is not used is of another kernel or "
      "processor,\n"
      "or of files that have changed since, or is damaged; the next start makes a new one.\n"
      "A command from a template is in a session of its own, without a terminal to read passwords\n"
      "from; this process passes signals on, and ends as the command ends. A template that is not\n"
      "used differs in what the line names.\n"
      "Examples:\n"
      "  weightmap run --template -- python serve.py\n"
      "  weightmap run -- python -m vllm.entrypoints.openai.api_server --model org/name\n"
      "  weightmap run --ready http://localhost:8000/health -v -- ./serve model.gguf\n"
      "  weightmap run --list /var/lib/snapshots\n"
      "  weightmap run --remove /var/lib/snapshots all");
  command.callback([options, question, &run] {
    const bool asks = question->is_asked();
    if (asks && !options->command.empty())
      throw CLI::ExcludesError("COMMAND",
                               "--list, --check, --remove, --list-templates and --end-templates");
    if (!asks && options->command.empty()) throw CLI::RequiredError("COMMAND");
    if (!asks && question->json)
      throw CLI::RequiresError("--json",
                               "--list, --check, --remove, --list-templates or --end-templates");
    run = [options, question](Output& out) {
      return question->is_asked() ? answer(out, *question) : run_command(out, *options);
    };
  });
}

}  // namespace weightmap::cli
