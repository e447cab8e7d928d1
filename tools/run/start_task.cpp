#include "tools/run/start_task.hpp"

#include <unistd.h>

#include <system_error>
#include <utility>

#include "tools/run/dropped_pages.hpp"
#include "tools/run/named_models.hpp"
#include "tools/run/plan_store.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::start {
namespace {

namespace fs = std::filesystem;

void take_plan(CompanionTask& task, const StartOptions& options, const fs::path& path) {
  task.plan_path = path;
  task.is_plan_given = !options.plan.empty();
  Result<StartPlan> plan = load_plan(path);
  const bool is_none = !plan && plan.error().code == ErrorCode::not_found;
  if (!plan && !is_none)
    task.remarks.push_back(printable(path.native()) + ": " + to_string(plan.error()));
  if (plan) task.plan = std::move(*plan);
  task.learns = options.learns && (!task.plan || options.learns_anew);
}

std::vector<fs::path> models_of(const StartOptions& options, const StartCommand& command,
                                std::vector<std::string>& remarks) {
  if (options.models.empty()) return named_models(command.words.subspan(1), environ);
  std::vector<fs::path> models;
  for (const std::string& model : options.models) {
    fs::path found = given_model(model);
    if (found.empty())
      remarks.push_back("--model " + printable(model) +
                        " is neither there nor in the cache of the hub");
    else
      models.push_back(std::move(found));
  }
  return models;
}

}  // namespace

std::string StartCommand::key() const { return start_key(program, words); }

fs::path given_model(const std::string& name) {
  // Whatever it is: its faults are told when it is opened.
  std::error_code error;
  return fs::exists(name, error) ? fs::absolute(name, error) : model_at(name);
}

Result<fs::path> plan_path_of(const StartOptions& options, const std::string& key) {
  std::error_code error;
  if (!options.plan.empty()) return fs::absolute(options.plan, error);
  return plan_path(key);
}

CompanionTask task_for(const StartOptions& options, const StartCommand& command,
                       const Result<fs::path>& plan_path) {
  CompanionTask task;
  task.key = command.key();
  task.speaks = options.speaks;
  task.program = command.words.front();
  if (!options.timeline.empty()) task.timeline = fs::absolute(options.timeline);
  if (!options.ready.empty()) task.ready = parse_ready(options.ready).value();
  if (plan_path)
    take_plan(task, options, *plan_path);
  else
    task.remarks.push_back(plan_path.error().message);
  task.models = models_of(options, command, task.remarks);
  return task;
}

void probe_mounts(const StartOptions& options, const StartCommand& command) {
  std::vector<std::string> remarks;
  for (const fs::path& model : models_of(options, command, remarks))
    static_cast<void>(drops_pages_at_open(model));
}

}  // namespace weightmap::cli::start
