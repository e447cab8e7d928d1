// `weightmap bench-sample-remote`: a fresh process for `weightmap bench --remote`. What to fetch
// comes on standard input, since others would see a URL and headers in the list of processes.
#include <cstdio>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>

#include "runtime/base/try.hpp"
#include "tools/bench/cold/stopwatch.hpp"
#include "tools/bench/remote/curl_fetch.hpp"
#include "tools/bench/remote_runner.hpp"
#include "tools/command.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/support/json_out.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap::cli {
namespace {

using namespace bench;

// What is counted, and the memory that holds the file, to be freed once the clocks were read.
struct Fetched {
  RangeCounts counts;
  std::shared_ptr<void> memory;
};

Result<Fetched> stage_it(const Json& task) {
  RemoteOptions options;
  task.at("connections").get_to(options.connections);
  task.at("headers").get_to(options.headers);
  TRY_ASSIGN(std::unique_ptr<RangeSource> source, open_remote(task.at("url"), options));
  TRY_ASSIGN(Staging staging, start_staging(std::move(source)));
  TRY_ASSIGN(StagedFile staged, staging.finish());
  return Fetched{staging.report().counts, std::make_shared<StagedFile>(std::move(staged))};
}

Result<Fetched> fetch_it(const Json& task, Bodies bodies) {
  CurlFetch fetch;
  task.at("url").get_to(fetch.url);
  task.at("headers").get_to(fetch.headers);
  task.at("bytes").get_to(fetch.size);
  if (const unsigned connections = task.at("connections"); connections != 0)
    fetch.connections = connections;
  fetch.bodies = bodies;
  TRY_ASSIGN(CurlFetched fetched, fetch_with_curl(fetch));
  return Fetched{{.requests = fetched.requests, .bytes = fetch.size}, std::move(fetched.memory)};
}

double seconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Result<Json> measure(const std::string& contender, const Json& task) try {
  const double began = seconds(CLOCK_MONOTONIC);
  const double cpu_began = seconds(CLOCK_PROCESS_CPUTIME_ID);
  const Bodies bodies = contender == libcurl_kept ? Bodies::kept : Bodies::dropped;
  TRY_ASSIGN(const Fetched fetched,
             contender == weightmap_staged ? stage_it(task) : fetch_it(task, bodies));
  return Json{{"seconds", seconds(CLOCK_MONOTONIC) - began},
              {"cpu_seconds", seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_began},
              {"requests", fetched.counts.requests},
              {"received_bytes", fetched.counts.bytes},
              {"received_twice_bytes", fetched.counts.bytes_twice}};
} catch (const Json::exception&) {
  return failure(ErrorCode::invalid_argument, "standard input is no task");
}

// The caller names the file in its own message.
int run_sample(Output& out, const std::string& contender) {
  std::cout << ready_line << std::endl;
  std::string line;
  std::getline(std::cin, line);
  Result<Json> sample = measure(contender, Json::parse(line, nullptr, false));
  if (sample) {
    out.write(to_text(*sample) + "\n");
    return exit_good;
  }
  sample.error().file.clear();
  std::fprintf(stderr, "%s\n", to_string(sample.error()).c_str());
  return exit_failed;
}

}  // namespace

void add_bench_sample_remote(CLI::App& app, Run& run) {
  auto contender = std::make_shared<std::string>();
  CLI::App& command =
      *app.add_subcommand("bench-sample-remote", "One sample of weightmap bench --remote");
  command.group("");  // hidden from the help
  command.add_option("CONTENDER", *contender)
      ->required()
      ->check(CLI::IsMember(
          {std::string(libcurl), std::string(libcurl_kept), std::string(weightmap_staged)}));
  command.callback([contender, &run] {
    run = [contender](Output& out) { return run_sample(out, *contender); };
  });
}

}  // namespace weightmap::cli
