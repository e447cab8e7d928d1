#include <algorithm>
#include <cstdio>
#include <memory>

#include "tools/bench/cold/engines.hpp"
#include "tools/bench/cold/report.hpp"
#include "tools/bench/cold/runner.hpp"
#include "tools/bench/start_bench.hpp"
#include "tools/command.hpp"
#include "tools/options/ready_option.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

using namespace bench;

struct BenchCommand : BenchOptions {
  std::vector<std::string> scenario_words;
  std::vector<std::string> models;
  std::string ready;
  bool start = false;  // FILE is a command
  bool json = false;
  bool list = false;
};

void check_engine(const char* option, const std::string& name) {
  const std::vector<std::string> names = engine_names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw CLI::ValidationError(
        option, "must be one of " + joined_words(names) + ", not \"" + printable(name) + "\"");
}

// Parses words such as "cold,warm" into the values of these names.
template <class T>
std::vector<T> parse_words(const char* option, const std::vector<std::string>& words,
                           const std::vector<T>& values) {
  std::vector<std::string> names;
  for (const T value : values) names.emplace_back(to_string(value));
  std::vector<T> found;
  for (const std::string& word : words) {
    const auto at = std::find(names.begin(), names.end(), word);
    if (at == names.end())
      throw CLI::ValidationError(
          option, "must be of " + joined_words(names) + ", not \"" + printable(word) + "\"");
    found.push_back(values[static_cast<std::size_t>(at - names.begin())]);
  }
  return found;
}

Json describe_engines(const std::vector<BenchEngine>& engines) {
  Json list = Json::array();
  for (const BenchEngine& engine : engines)
    list.push_back({{"name", engine.name},
                    {"title", engine.title},
                    {"why_not", engine.why_not.empty() ? Json(nullptr) : Json(engine.why_not)}});
  return {{"engines", list}};
}

Result<int> list(Output& out, const BenchCommand& options) {
  const std::vector<BenchEngine> engines = list_engines(options.python);
  if (options.json) {
    out.write(to_text(describe_engines(engines)) + "\n");
    return exit_good;
  }
  print_columns(out, {}, {{"ENGINE"}, {"WHAT IT DOES"}, {"WHY NOT HERE"}}, engines.size(),
                [&](std::size_t i) {
                  return std::vector<std::string>{
                      engines[i].name, printable(engines[i].title),
                      engines[i].why_not.empty() ? "" : printable(engines[i].why_not)};
                });
  return exit_good;
}

bool was_measured(const FileResults& file) {
  return std::any_of(file.series.begin(), file.series.end(),
                     [](const Series& series) { return !series.samples.empty(); });
}

int tell_interrupted() {
  std::fprintf(stderr, "weightmap: interrupted; everything is as it was before\n");
  return exit_interrupted;
}

StartBenchOptions start_options(const BenchCommand& options) {
  StartBenchOptions start;
  start.command = options.files;
  start.models = options.models;
  start.ready = options.ready;
  start.states = {StartState::cached, StartState::model_cold, StartState::cold};
  if (!options.scenario_words.empty())
    start.states = parse_words<StartState>("--scenarios", options.scenario_words, start.states);
  start.rounds = options.rounds;
  start.recycle_memory = options.recycle_memory;
  return start;
}

Result<int> run_starts(Output& out, const BenchCommand& options) {
  const Result<StartResults> results = run_start_bench(start_options(options));
  if (!results && interrupted()) return tell_interrupted();
  if (!results) return tl::unexpected<Error>(results.error());
  if (options.json)
    out.write(to_text(start_json(*results)) + "\n");
  else
    out.write(start_text(*results));
  return std::any_of(results->states.begin(), results->states.end(),
                     [](const StateResults& state) { return state.why_not.empty(); })
             ? exit_good
             : exit_failed;
}

void add_starts(CLI::App& command, BenchCommand& options) {
  command.add_flag("--start", options.start,
                   "Measure whole starts of a command, which stands behind --, with and without\n"
                   "weightmap run");
  add_ready_option(command, options.ready);
  command.add_option("--model", options.models, "With --start: weights, if the command names none")
      ->allow_extra_args(false)
      ->type_name("MODEL");
}

void check_starts(const BenchCommand& options) {
  if (!options.start && (!options.ready.empty() || !options.models.empty()))
    throw CLI::RequiresError(options.ready.empty() ? "--model" : "--ready", "--start");
  if (!options.start) return;
  start_options(options);  // whose --scenarios are checked
  if (!options.ready.empty() &&
      std::holds_alternative<std::chrono::seconds>(start::parse_ready(options.ready).value()))
    throw CLI::ValidationError("--ready", "is a time, which measures nothing");
}

Result<int> run_bench_command(Output& out, const BenchCommand& options) {
  if (options.list) return list(out, options);
  if (options.start) return run_starts(out, options);
  const Result<Results> results = run_bench(options);
  if (!results && interrupted()) return tell_interrupted();
  if (!results) return tl::unexpected<Error>(results.error());
  if (options.json)
    out.write(to_text(json_report(*results)) + "\n");
  else
    out.write(text_report(*results));
  if (interrupted()) return tell_interrupted();
  return std::all_of(results->files.begin(), results->files.end(), was_measured) ? exit_good
                                                                                 : exit_failed;
}

void add_what_to_measure(CLI::App& command, BenchCommand& options) {
  command.add_option("FILE", options.files, "Checkpoints")->type_name("");
  command
      .add_option_function<std::vector<std::string>>(
          "--engines",
          [&options](const std::vector<std::string>& names) {
            for (const std::string& name : names) check_engine("--engines", name);
            options.engines = names;
          },
          "What to measure, in the order of the report; default: all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command
      .add_option("--scenarios", options.scenario_words,
                  "States of the page cache, of cold,warm,poisoned, or with --start of\n"
                  "cached,model-cold,cold; default: all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command
      .add_option_function<std::vector<std::string>>(
          "--orders",
          [&options](const std::vector<std::string>& words) {
            options.orders = parse_words<Order>("--orders", words, {Order::file, Order::random});
          },
          "Orders of tensors, of file,random; default: file")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command.add_option("--rounds", options.rounds, "Samples of each; default: 7")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  command
      .add_option("--tensor", options.tensor,
                  "The tensor that is needed first; default: the first of at least 8 MiB")
      ->type_name("NAME");
  command
      .add_option_function<std::string>(
          "--reference",
          [&options](const std::string& name) {
            check_engine("--reference", name);
            options.reference = name;
          },
          "What others are compared with; default: populate")
      ->type_name("ENGINE");
}

void add_how_to_measure(CLI::App& command, BenchCommand& options) {
  command.add_option("--python", options.python, "For engines of other libraries")
      ->type_name("PYTHON");
  command
      .add_option_function<std::string>(
          "--memory",
          [&options](const std::string& word) { options.recycle_memory = word == "recycled"; },
          "Touch and free memory before each sample, or take it as it is; default: recycled")
      ->check(CLI::IsMember({"recycled", "as-is"}))
      ->type_name("recycled|as-is");
  command.add_flag("--json", options.json, "One JSON document on standard output");
  command.add_flag("--list", options.list, "List engines, and why some cannot be measured here");
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  auto options = std::make_shared<BenchCommand>();
  options->scenarios = {Scenario::cold, Scenario::warm, Scenario::poisoned};
  options->orders = {Order::file};
  CLI::App& command = *app.add_subcommand("bench", "Compare ways to load the file, cold and warm");
  add_what_to_measure(command, *options);
  add_how_to_measure(command, *options);
  add_starts(command, *options);
  command.footer(
      "Each sample is a fresh process that reads all tensors, in a state of the page cache that "
      "was\n"
      "proven just before. Ends with exit status 1 if nothing of a file could be measured.\n"
      "Examples:\n"
      "  weightmap bench model.pt\n"
      "  weightmap bench model.pt --engines disk,populate,map --scenarios cold\n"
      "  weightmap bench --list --python .venv/bin/python\n"
      "  weightmap bench --start --ready 8000 -- python serve.py --port 8000");
  command.callback([options, &run] {
    if (options->files.empty() && !options->list)
      throw CLI::RequiredError(options->start ? "COMMAND" : "FILE");
    check_starts(*options);
    if (!options->start) std::ranges::for_each(options->files, refuse_url);
    if (!options->start && !options->scenario_words.empty())
      options->scenarios =
          parse_words<Scenario>("--scenarios", options->scenario_words,
                                {Scenario::cold, Scenario::warm, Scenario::poisoned});
    run = [options](Output& out) { return run_bench_command(out, *options); };
  });
}

}  // namespace weightmap::cli
