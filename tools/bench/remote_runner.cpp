#include "tools/bench/remote_runner.hpp"

#include <memory>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/bench/cold/process.hpp"
#include "tools/bench/cold/progress_line.hpp"
#include "tools/bench/cold/recycle_memory.hpp"
#include "tools/bench/cold/stopwatch.hpp"
#include "tools/bench/cold/turns.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/support/interruptible.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

Result<std::uint64_t> size_of(const FileArgument& file) {
  RemoteOptions options = file.remote;
  options.goes_on = [] { return !interrupted(); };
  TRY_ASSIGN(const std::unique_ptr<RangeSource> source, open_remote(file.url, options));
  TRY_ASSIGN(const RemoteVersion version, source->identify({}, {}));
  return version.size;
}

tl::unexpected<Error> failed(std::string_view contender, const std::string& why) {
  return failure(ErrorCode::io, std::string(contender) + ": " + why);
}

// The process gets `task` instead of the line that lets others go.
Result<Json> sample(const Json& task, std::string_view contender, std::uint64_t recycled_bytes) {
  TRY_ASSIGN(Process process,
             Process::start({"/proc/self/exe", "bench-sample-remote", std::string(contender)}));
  TRY(process.wait_for_line(ready_line));
  recycle_memory(recycled_bytes);
  TRY(go_on());
  process.write(to_text(task) + "\n");
  TRY_ASSIGN(const Finished finished, process.finish());
  if (finished.exit_code != 0) return failed(contender, failure_text(finished));
  Json sample = Json::parse(finished.output, nullptr, false);
  if (!sample.is_object()) return failed(contender, "printed no sample");
  return sample;
}

Result<void> measure(const FileArgument& file, RemoteResults& results) {
  TRY_ASSIGN(results.file_bytes, size_of(file));
  const Json task = {{"url", file.url},
                     {"bytes", results.file_bytes},
                     {"connections", file.remote.connections},
                     {"headers", file.remote.headers}};
  const std::uint64_t recycled = results.recycled_memory ? results.file_bytes + process_memory : 0;
  ProgressLine progress(results.series.size() * results.rounds);
  Turns turns(results.series.size());
  for (unsigned round = 0; round < results.rounds; ++round)
    for (const std::size_t turn : turns.next_round()) {
      RemoteSeries& series = results.series[turn];
      progress.begin(std::string(series.contender));
      TRY_ASSIGN(Json taken, sample(task, series.contender, recycled));
      series.samples.push_back(std::move(taken));
    }
  return {};
}

}  // namespace

std::vector<double> RemoteSeries::values(const char* field) const {
  std::vector<double> numbers;
  for (const Json& sample : samples) numbers.push_back(sample.value(field, 0.0));
  return numbers;
}

Result<RemoteResults> run_remote_bench(const FileArgument& file, unsigned rounds,
                                       bool recycle_memory) {
  const Interruptible interruptible;
  RemoteResults results;
  results.url = file.file;
  results.rounds = rounds;
  results.recycled_memory = recycle_memory;
  results.series = {{libcurl}, {libcurl_kept}, {weightmap_staged}};
  TRY(measure(file, results));
  return results;
}

}  // namespace weightmap::cli::bench
