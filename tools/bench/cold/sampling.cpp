#include "tools/bench/cold/sampling.hpp"

#include "runtime/base/try.hpp"
#include "tools/bench/cold/process.hpp"
#include "tools/bench/cold/rounds.hpp"
#include "tools/bench/cold/stopwatch.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

constexpr int tries = 3;

struct Attempt {
  Sample sample;
  std::string why_not;  // it can never work; empty: it did
  std::string spoilt;   // another event disturbed the sample, so it does not count
};

Attempt hopeless(std::string why) { return {{}, std::move(why), {}}; }

// Returns nullopt if `json` is not a sample.
std::optional<Sample> read_sample(const Json& json) {
  Sample sample;
  try {
    sample.open_ms = json.at("open_ms");
    sample.first_byte_ms = json.at("first_byte_ms");
    sample.first_tensor_ms = json.at("first_tensor_ms");
    sample.all_ms = json.at("all_ms");
    sample.disk_bytes = json.at("disk_bytes");
    sample.minor_faults = json.at("minor_faults");
    sample.major_faults = json.at("major_faults");
    sample.anonymous_bytes = json.at("anonymous_bytes");
    sample.file_bytes = json.at("file_bytes");
    sample.checksum = json.at("checksum");
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return sample;
}

std::string wrong_bytes(const SampleTask& task, const Json& json, const Sample& sample) {
  if (const std::uint64_t bytes = json.value("bytes", std::uint64_t{0}); bytes != task.tensor_bytes)
    return "read " + std::to_string(bytes) + " bytes of tensors instead of " +
           std::to_string(task.tensor_bytes);
  if (sample.checksum == task.checksum) return {};
  return "read other bytes: checksum " + std::to_string(sample.checksum) + " instead of " +
         std::to_string(task.checksum);
}

std::string spoilt(Scenario scenario, const Sample& sample, std::uint64_t file_bytes) {
  if (scenario == Scenario::cold)
    return sample.cached_before == 0 ? "" : "something else reads the file";
  if (sample.cached_before < file_bytes) return "the page cache lost part of the file";
  if (sample.disk_bytes > 0 || sample.major_faults > 0)
    return human_bytes(sample.disk_bytes) + " were read from the disk, with " +
           count(sample.major_faults, "major fault") + ", although all of the file was cached";
  return {};
}

// Prepares a sample once its process is ready.
WhyNot prepare(WatchedFile& file, const SampleTask& task, Sample& before) {
  if (WhyNot why = file.prepare(task.scenario); !why.empty()) return why;
  if (task.recycle) recycle_memory(file.bytes() + process_memory);
  const Result<std::uint64_t> cached = file.cached_bytes();
  if (!cached) return to_string(cached.error());
  before.cached_before = *cached;
  return {};
}

Result<Attempt> attempt(WatchedFile& file, const SampleTask& task) {
  Result<Process> process = Process::start(task.command);
  if (!process) return hopeless(process.error().message);
  const Result<bool> ready = process->wait_for_line(ready_line);
  if (!ready) return tl::unexpected<Error>(ready.error());
  Sample before;
  if (*ready)
    if (WhyNot why = prepare(file, task, before); !why.empty()) return hopeless(std::move(why));
  TRY(go_on());
  process->write(std::string(go_line) + "\n");
  const Result<Finished> finished = process->finish();
  if (!finished) return tl::unexpected<Error>(finished.error());
  if (finished->exit_code != 0) return hopeless(failure_text(*finished));
  if (!*ready) return hopeless("did not wait until the file was prepared");

  const Json json = Json::parse(finished->output, nullptr, false);
  std::optional<Sample> sample = read_sample(json);
  if (!sample) return hopeless("printed no sample: " + printable(finished->output.substr(0, 80)));
  if (std::string why = wrong_bytes(task, json, *sample); !why.empty()) return hopeless(why);
  sample->cached_before = before.cached_before;
  sample->cached_after = file.cached_bytes().value_or(0);
  sample->huge_part_after = file.huge_part();
  return Attempt{*sample, {}, spoilt(task.scenario, *sample, file.bytes())};
}

void give_up(Series& series, std::string why) {
  series.samples.clear();
  series.why_not = std::move(why);
}

}  // namespace

std::vector<std::string> sample_command(const BenchEngine& engine, const std::string& python,
                                        const std::string& file, const std::string& order_file) {
  if (engine.native != nullptr)
    return {"/proc/self/exe", "bench-sample", engine.name, file, order_file};
  return {python, "-c", std::string(python_source()), engine.name, file, order_file};
}

Result<void> add_sample(Series& series, WatchedFile& file, const SampleTask& task) {
  Attempt last;
  for (int i = 0; i < tries; ++i) {
    TRY_ASSIGN(last, attempt(file, task));
    if (!last.why_not.empty()) {
      give_up(series, std::move(last.why_not));
      return {};
    }
    if (last.spoilt.empty()) {
      series.samples.push_back(last.sample);
      return {};
    }
    ++series.discarded;
  }
  give_up(series, std::move(last.spoilt));
  return {};
}

}  // namespace weightmap::cli::bench
