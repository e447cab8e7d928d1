#include "tools/bench/start_bench.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/bench/cold/machine.hpp"
#include "tools/bench/cold/plain_files.hpp"
#include "tools/bench/cold/report.hpp"
#include "tools/bench/cold/rounds.hpp"
#include "tools/bench/cold/statistics.hpp"
#include "tools/run/command_process.hpp"
#include "tools/run/named_models.hpp"
#include "tools/run/plan_store.hpp"
#include "tools/run/program.hpp"
#include "tools/run/readiness.hpp"
#include "tools/run/start_reader.hpp"
#include "tools/run/start_task.hpp"
#include "tools/run/weights_reader.hpp"
#include "tools/support/columns.hpp"
#include "tools/support/files.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"
#include "weightmap/version.hpp"

namespace weightmap::cli::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int look_every = 5;  // milliseconds
constexpr int tries = 40;      // of bringing about a state, while a process still ends
constexpr milliseconds between_tries{50};
constexpr milliseconds time_to_save{20'000};  // a plan, behind the end of a start

// A command whose starts are timed.
class TimedCommand {
 public:
  static Result<TimedCommand> start(const std::vector<std::string>& words,
                                    const std::optional<start::Ready>& ready) {
    if (ready) {
      std::error_code none;
      if (const auto* file = std::get_if<start::ReadyFile>(&*ready)) fs::remove(file->path, none);
      if (start::Readiness(*ready).is_over(0))
        return failure(ErrorCode::io, "--ready holds before the command has begun");
    }
    const Clock::time_point began = Clock::now();
    TRY_ASSIGN(start::CommandProcess process,
               start::CommandProcess::start(words, start::CommandProcess::Output::nothing));
    return TimedCommand(std::move(process), began);
  }

  // Returns the milliseconds until it was ready, or has ended without being asked for more.
  Result<double> wait(const std::optional<start::Ready>& ready) {
    std::optional<start::Readiness> readiness;
    if (ready) readiness.emplace(*ready);
    while (!process_.processes().wait_for_end(look_every)) {
      TRY(go_on());
      if (readiness && readiness->is_over(0)) return elapsed();
    }
    const double time = elapsed();
    has_ended_ = true;
    const int status = process_.wait();
    if (status != 0)
      return failure(ErrorCode::io, "the command ended with status " + std::to_string(status));
    if (ready) return failure(ErrorCode::io, "the command ended before it was ready");
    return time;
  }

  void end() {
    if (!std::exchange(has_ended_, true)) process_.end();
  }

 private:
  TimedCommand(start::CommandProcess process, Clock::time_point began) noexcept
      : process_(std::move(process)), began_(began) {}

  double elapsed() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - began_).count();
  }

  start::CommandProcess process_;
  Clock::time_point began_;
  bool has_ended_ = false;
};

// What is brought into states: the files of a start, and those of models.
struct Planned {
  start::StartPlan code, weights;
};

class StateMaker {
 public:
  explicit StateMaker(const Planned& planned) noexcept : planned_(planned) {}

  // Returns why the state cannot be had; empty: it was seen.
  std::string make(StartState state) {
    std::string why;
    for (int i = 0; i < tries && !interrupted(); ++i) {
      make_once(state);
      why = why_not(state);
      if (why.empty()) return why;
      ::usleep(std::chrono::microseconds(between_tries).count());
    }
    return why;
  }

  std::uint64_t bytes_in_use() const noexcept { return bytes_in_use_; }

 private:
  void make_once(StartState state) const {
    if (state == StartState::cold)
      start::evict(planned_.code);
    else
      start::fill_cache(planned_.code);
    if (state == StartState::cached)
      start::fill_cache(planned_.weights);
    else
      start::evict(planned_.weights);
  }

  std::string why_not(StartState state) {
    const Result<std::uint64_t> code = start::cached_bytes_of(planned_.code);
    const Result<std::uint64_t> weights = start::cached_bytes_of(planned_.weights);
    if (!code) return to_string(code.error());
    if (!weights) return to_string(weights.error());
    const std::uint64_t all = planned_.code.planned_bytes();
    if (state != StartState::cached && *weights > 0)
      return human_bytes(*weights) + " of the weights stay in the page cache";
    if (state == StartState::cached && *weights < planned_.weights.planned_bytes())
      return "not all of the weights stay in the page cache";
    if (state != StartState::cold)
      return *code < all ? "not all that a start reads stays in the page cache" : "";
    if (*code > all / 2)
      return human_bytes(*code) + " of " + human_bytes(all) +
             " that a start reads stay in the page cache, since other processes use them";
    // What a process that has just ended had mapped goes at the next try.
    if (*code != std::exchange(bytes_in_use_, *code))
      return "what stays in the page cache changes all the time";
    return {};
  }

  const Planned& planned_;
  std::uint64_t bytes_in_use_ = 0;
};

Result<std::vector<start::PlannedFile>> weights_of(const fs::path& model) {
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(model, OpenOptions::to_look()));
  return start::weights_plan(checkpoint, {}).files;
}

// A word of the command may be no model, but what --model says has to be one.
Result<start::StartPlan> weights_of(const StartBenchOptions& options) {
  start::StartPlan plan;
  const auto add = [&plan](const std::vector<start::PlannedFile>& files) {
    plan.files.insert(plan.files.end(), files.begin(), files.end());
  };
  for (const std::string& model : options.models) {
    const fs::path found = start::given_model(model);
    TRY_ASSIGN(const auto files, weights_of(found.empty() ? fs::path(model) : found));
    add(files);
  }
  if (options.models.empty())
    for (const fs::path& model :
         start::named_models(std::span(options.command).subspan(1), environ))
      if (const auto files = weights_of(model)) add(*files);
  return plan;
}

class StartRunner {
 public:
  StartRunner(const StartBenchOptions& options, fs::path plan, StartResults& results)
      : options_(options), plan_(std::move(plan)), results_(results) {
    if (!options.ready.empty()) ready_ = start::parse_ready(options.ready).value();
  }

  Result<void> learn() {
    TRY_ASSIGN(TimedCommand command, TimedCommand::start(under_run({"--learn"}), ready_));
    TRY(command.wait(ready_));
    Result<start::StartPlan> plan = start::load_plan(plan_);
    for (const Clock::time_point until = Clock::now() + time_to_save;
         !plan && Clock::now() < until && !interrupted(); plan = start::load_plan(plan_))
      ::usleep(std::chrono::microseconds(between_tries).count());
    command.end();
    TRY(go_on());
    if (!plan)
      return failure(ErrorCode::io, "nothing was learned of this start: " + plan.error().message);
    return divide(std::move(*plan));
  }

  // One that stands for the disk that is measured.
  std::string a_file() const {
    const start::StartPlan& plan =
        planned_.weights.files.empty() ? planned_.code : planned_.weights;
    return plan.files.empty() ? std::string() : plan.files.front().path;
  }

  Result<void> run() {
    ProgressLine progress(options_.states.size() * options_.rounds * contenders);
    for (const StartState state : options_.states) TRY(run(state, progress));
    return {};
  }

 private:
  static constexpr std::size_t contenders = 3;  // stock, stock again, run

  std::vector<std::string> under_run(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"/proc/self/exe", "run", "--plan", plan_.native()};
    for (const std::string& model : options_.models) words.insert(words.end(), {"--model", model});
    if (!options_.ready.empty()) words.insert(words.end(), {"--ready", options_.ready});
    words.insert(words.end(), more.begin(), more.end());
    words.emplace_back("--");
    words.insert(words.end(), options_.command.begin(), options_.command.end());
    return words;
  }

  Result<void> divide(start::StartPlan plan) {
    TRY_ASSIGN(planned_.weights, weights_of(options_));
    std::set<std::string> weights;
    for (const start::PlannedFile& file : planned_.weights.files) weights.insert(file.path);
    for (start::PlannedFile& file : plan.files)
      if (!weights.contains(file.path)) planned_.code.files.push_back(std::move(file));
    results_.files = planned_.code.files.size();
    results_.file_bytes = planned_.code.planned_bytes();
    results_.weight_files = planned_.weights.files.size();
    results_.weight_bytes = planned_.weights.planned_bytes();
    return {};
  }

  Result<void> run(StartState state, ProgressLine& progress) {
    StateResults results;
    results.state = state;
    for (const char* const name : {"stock", "stock again", "run"})
      results.series.push_back({name, {}});
    if (state == StartState::model_cold && planned_.weights.files.empty())
      results.why_not = "no model is known: --model names it";
    StateMaker maker(planned_);
    Turns turns(contenders);
    for (unsigned round = 0; round < options_.rounds && results.why_not.empty(); ++round)
      for (const std::size_t turn : turns.next_round()) {
        progress.begin(std::string(to_string(state)) + ": " + results.series[turn].contender);
        results.why_not = maker.make(state);
        TRY(go_on());
        if (!results.why_not.empty()) break;
        TRY_ASSIGN(const double time, sample(results.series[turn].contender == "run"));
        results.series[turn].samples_ms.push_back(time);
      }
    results.bytes_in_use = maker.bytes_in_use();
    if (!results.why_not.empty()) results.series.clear();
    results_.states.push_back(std::move(results));
    return {};
  }

  Result<double> sample(bool is_under_run) {
    if (options_.recycle_memory) recycle_memory(results_.weight_bytes + process_memory);
    TRY_ASSIGN(TimedCommand command,
               TimedCommand::start(is_under_run ? under_run({}) : options_.command, ready_));
    TRY_ASSIGN(const double time, command.wait(ready_));
    command.end();
    return time;
  }

  const StartBenchOptions& options_;
  const fs::path plan_;
  StartResults& results_;
  std::optional<start::Ready> ready_;
  Planned planned_;
};

std::optional<Ratio> ratio_of(const StateResults& state, const StartSeries& series) {
  const StartSeries& reference = state.series.front();
  if (&series == &reference) return std::nullopt;
  return compare(series.samples_ms, reference.samples_ms);
}

std::string facts_of(const StartResults& results) {
  return "A start reads " + count(results.files, "file") + ", " + human_bytes(results.file_bytes) +
         ", and " + human_bytes(results.weight_bytes) +
         " of weights. It is over when the command " + (results.ends ? "ends" : "is ready") + ".";
}

std::string settings_of(const StartResults& results) {
  return count(results.rounds, "round") +
         ", every sample a fresh process in a state that was proven just before; memory " +
         (results.recycled_memory ? "touched and freed before each" : "as the system gives it") +
         ". The ratio is that to stock, with its interval: 2 is twice as long.";
}

std::string describe(const StateResults& state) {
  switch (state.state) {
    case StartState::cached:
      return "all that a start reads and all weights are in the page cache";
    case StartState::model_cold:
      return "all that a start reads is in the page cache, and nothing of the weights";
    case StartState::cold:
      return "nothing of either is in the page cache, but " + human_bytes(state.bytes_in_use) +
             " that other processes use";
  }
  return "";
}

std::vector<std::vector<std::string>> rows_of(const StateResults& state) {
  std::vector<std::vector<std::string>> rows;
  for (const StartSeries& series : state.series) {
    const Summary times = summarize(series.samples_ms);
    const std::optional<Ratio> ratio = ratio_of(state, series);
    rows.push_back({series.contender, duration(times.median), duration(times.min),
                    duration(times.p95), ratio ? ratio_text(*ratio) : "1"});
  }
  return rows;
}

Json describe_state(const StateResults& state) {
  Json list = Json::array();
  for (const StartSeries& series : state.series)
    list.push_back({{"contender", series.contender},
                    {"samples_ms", series.samples_ms},
                    {"all_ms", bench::describe(summarize(series.samples_ms))},
                    {"ratio", bench::describe(ratio_of(state, series))}});
  return {{"state", to_string(state.state)},
          {"why_not", state.why_not.empty() ? Json(nullptr) : Json(state.why_not)},
          {"bytes_in_use", state.bytes_in_use},
          {"series", list}};
}

}  // namespace

std::string_view to_string(StartState state) noexcept {
  constexpr std::string_view words[] = {"cached", "model-cold", "cold"};
  return words[static_cast<std::size_t>(state)];
}

Result<StartResults> run_start_bench(const StartBenchOptions& options) {
  std::error_code error;
  if (!fs::exists(start::find_program(options.command.front()), error))
    return failure(ErrorCode::not_found, "cannot run " + printable(options.command.front()) +
                                             ": No such file or directory");
  const Interruptible interruptible;
  TRY_ASSIGN(const TemporaryFolder folder, TemporaryFolder::create(fs::temp_directory_path()));
  StartResults results;
  results.version = WEIGHTMAP_VERSION;
  results.program = fs::path(options.command.front()).filename().native();
  results.ends = options.ready.empty();
  results.rounds = options.rounds;
  results.recycled_memory = options.recycle_memory;
  StartRunner runner(options, folder.path() / "plan.json", results);
  TRY(runner.learn());
  results.machine = describe_machine(runner.a_file());
  TRY(runner.run());
  return results;
}

std::string start_text(const StartResults& results) {
  std::string out = "Starts of " + printable(results.program) + ". " + facts_of(results) + "\n";
  for (const StateResults& state : results.states) {
    out += "\n" + std::string(to_string(state.state)) + ": ";
    out += state.why_not.empty() ? describe(state) + "\n" +
                                       to_columns({{"CONTENDER"},
                                                   {"MEDIAN", Column::right},
                                                   {"BEST", Column::right},
                                                   {"P95", Column::right},
                                                   {"RATIO TO STOCK", Column::right}},
                                                  rows_of(state))
                                 : "not measured: " + state.why_not + "\n";
  }
  return out + "\n" + machine_text(results.machine) + "\n" + settings_of(results) + "\n";
}

Json start_json(const StartResults& results) {
  Json states = Json::array();
  for (const StateResults& state : results.states) states.push_back(describe_state(state));
  return {{"program", results.program},
          {"version", results.version},
          {"machine", machine_text(results.machine)},
          {"date", results.machine.date},
          {"rounds", results.rounds},
          {"recycled_memory", results.recycled_memory},
          {"until", results.ends ? "end" : "ready"},
          {"files", results.files},
          {"file_bytes", results.file_bytes},
          {"weight_files", results.weight_files},
          {"weight_bytes", results.weight_bytes},
          {"states", states}};
}

}  // namespace weightmap::cli::bench
