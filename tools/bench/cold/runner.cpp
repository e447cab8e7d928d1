#include "tools/bench/cold/runner.hpp"

#include <algorithm>
#include <cstdio>

#include "runtime/base/try.hpp"
#include "tools/bench/cold/bench_file.hpp"
#include "tools/bench/cold/engines.hpp"
#include "tools/bench/cold/machine.hpp"
#include "tools/bench/cold/process.hpp"
#include "tools/bench/cold/rounds.hpp"
#include "tools/bench/cold/sampling.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"
#include "weightmap/version.hpp"

namespace weightmap::cli::bench {
namespace {

// Returns the participants of a round: the measurable engines, and the reference again.
std::vector<BenchEngine> contenders(const std::vector<BenchEngine>& engines,
                                    const Results& results) {
  std::vector<BenchEngine> found;
  for (const BenchEngine& engine : engines) {
    if (!engine.why_not.empty()) continue;
    found.push_back(engine);
    if (engine.name == results.reference) found.push_back(engine);
  }
  return found;
}

// Returns the requested engines in order, with the reference first if it is not among them.
Result<std::vector<BenchEngine>> choose_engines(const BenchOptions& options) {
  const std::vector<BenchEngine> all = list_engines(options.python);
  std::vector<std::string> names = options.engines.empty() ? engine_names() : options.engines;
  if (std::find(names.begin(), names.end(), options.reference) == names.end())
    names.insert(names.begin(), options.reference);
  std::vector<BenchEngine> chosen;
  for (const std::string& name : names) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const BenchEngine& engine) { return engine.name == name; });
    if (found == all.end())
      return failure(ErrorCode::invalid_argument, "there is no engine \"" + printable(name) + "\"");
    if (name == options.reference && !found->why_not.empty())
      return failure(ErrorCode::invalid_argument,
                     "the reference " + name + " cannot be measured: " + found->why_not);
    chosen.push_back(*found);
  }
  return chosen;
}

class Runner {
 public:
  Runner(const BenchOptions& options, std::vector<BenchEngine> engines, Results& results)
      : options_(options),
        results_(results),
        contenders_(contenders(engines, results)),
        progress_(options.files.size() * options.scenarios.size() * options.orders.size() *
                  contenders_.size() * options.rounds) {}

  Result<void> run(BenchFile& file) {
    Result<void> ok = convert(file);
    results_.files.push_back(file.description());
    for (const Scenario scenario : options_.scenarios) {
      for (const Order order : options_.orders)
        if (ok) ok = run(file, scenario, order);
      file.release();
    }
    return ok;
  }

 private:
  // One series for each contender.
  struct Lane {
    const BenchEngine* engine;
    Series series;
    SampleTask task;
  };

  Result<void> convert(BenchFile& file) {
    no_safetensors_.clear();
    const bool wanted = std::any_of(contenders_.begin(), contenders_.end(), [](const auto& engine) {
      return engine.reads == Reads::safetensors;
    });
    if (!wanted || !file.is_torch_file()) return {};
    TRY_ASSIGN(no_safetensors_, file.convert());
    return {};
  }

  Result<void> run(BenchFile& file, Scenario scenario, Order order) {
    std::vector<Lane> lanes = make_lanes(file, scenario, order);
    Turns turns(lanes.size());
    Result<void> ok;
    unsigned rounds = 0;  // whole ones
    for (; ok && rounds < options_.rounds; rounds += ok ? 1 : 0)
      for (const std::size_t turn : turns.next_round())
        if (ok) ok = sample(file, lanes[turn]);
    if (rounds == 0) return ok;
    for (Lane& lane : lanes) {
      if (lane.series.samples.size() > rounds) lane.series.samples.resize(rounds);
      results_.files.back().series.push_back(std::move(lane.series));
    }
    return ok;
  }

  std::vector<Lane> make_lanes(BenchFile& file, Scenario scenario, Order order) {
    std::vector<Lane> lanes;
    for (const BenchEngine& engine : contenders_) {
      Lane lane{&engine, {}, {}};
      const bool again = !lanes.empty() && lanes.back().series.engine == engine.name;
      lane.series.engine = again ? results_.again : engine.name;
      lane.series.scenario = scenario;
      lane.series.order = order;
      lane.series.why_not = why_not(file, engine, scenario);
      if (lane.series.why_not.empty()) {
        lane.task.command = sample_command(
            engine, options_.python, file.watched(engine.reads).path(), file.order_file(order));
        lane.task.scenario = scenario;
        lane.task.recycle = options_.recycle_memory;
        lane.task.checksum = file.checksum();
        lane.task.tensor_bytes = file.description().tensor_bytes;
      }
      lanes.push_back(std::move(lane));
    }
    return lanes;
  }

  std::string why_not(const BenchFile& file, const BenchEngine& engine, Scenario scenario) const {
    if (WhyNot why = file.why_not(engine.reads); !why.empty()) return why;
    if (engine.reads == Reads::safetensors && !no_safetensors_.empty()) return no_safetensors_;
    if (engine.native != nullptr && engine.native->way == Way::direct && scenario != Scenario::cold)
      return "reads past the page cache, so that it shows nothing but the disk";
    return {};
  }

  Result<void> sample(BenchFile& file, Lane& lane) {
    show(lane);
    if (!lane.series.why_not.empty()) return {};
    return add_sample(lane.series, file.watched(lane.engine->reads), lane.task);
  }

  void show(const Lane& lane) {
    progress_.begin(std::string(to_string(lane.series.scenario)) + ", " +
                    std::string(to_string(lane.series.order)) + " order: " + lane.series.engine);
  }

  const BenchOptions& options_;
  Results& results_;
  std::vector<BenchEngine> contenders_;
  ProgressLine progress_;
  std::string no_safetensors_;  // why the current file has no conversion
};

std::string decimal(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", number);
  return text;
}

void warn_of_load(Results& results) {
  const double load = load_average();
  if (load > results.machine.cores * 0.5)
    results.warnings.push_back("The machine was busy before: load average " + decimal(load) +
                               " on " + count(results.machine.cores, "core") + ".");
}

void warn_of_size(const BenchFile& file, Results& results) {
  const FileResults& facts = file.description();
  if (facts.file_bytes > memory_bytes() / 2)
    results.warnings.push_back(printable(facts.path) +
                               " is larger than half of the memory, so that the page cache may "
                               "drop parts of it at any time.");
}

void warn_of_steal(const ProcessorTime& before, Results& results) {
  const ProcessorTime after = ProcessorTime::now();
  if (after.all <= before.all) return;
  const double part = static_cast<double>(after.stolen - before.stolen) /
                      static_cast<double>(after.all - before.all);
  if (part > 0.01)
    results.warnings.push_back("The host gave " + decimal(part * 100) +
                               " % of the processors' time to other machines meanwhile.");
}

Result<std::vector<BenchFile>> open_files(const BenchOptions& options, Results& results) {
  std::vector<BenchFile> files;
  for (const std::string& path : options.files) {
    TRY_ASSIGN(BenchFile file, BenchFile::open(path, options.tensor));
    warn_of_size(file, results);
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

Result<Results> run_bench(const BenchOptions& options) {
  const Interruptible interruptible;
  Results results;
  results.version = WEIGHTMAP_VERSION;
  results.rounds = options.rounds;
  results.reference = options.reference;
  results.again = options.reference + " again";
  results.recycled_memory = options.recycle_memory;
  results.machine = describe_machine(options.files.front());
  warn_of_load(results);

  TRY_ASSIGN(const std::vector<BenchEngine> engines, choose_engines(options));
  for (const BenchEngine& engine : engines) results.engines.push_back(engine);
  TRY_ASSIGN(std::vector<BenchFile> files, open_files(options, results));

  const ProcessorTime before = ProcessorTime::now();
  Runner runner(options, engines, results);
  for (BenchFile& file : files) {
    const Result<void> done = runner.run(file);
    if (!results.files.empty() && results.files.back().series.empty()) results.files.pop_back();
    if (!done && (!interrupted() || results.files.empty())) return tl::unexpected(done.error());
    if (done) continue;
    results.warnings.push_back("It was interrupted: only whole rounds of what was begun are here.");
    break;
  }
  warn_of_steal(before, results);
  return results;
}

}  // namespace weightmap::cli::bench
