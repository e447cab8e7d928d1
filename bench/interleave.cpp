// Runs programs in turns, each time in a fresh process, and prints statistics of their figures.
//
//   interleave [--rounds N] [--recycle MIB] [--in-order] [--system-calls] NAME=COMMAND...
//
// COMMAND is run by the shell and prints one JSON object. So does this program: for each contender
// the objects of all rounds, the median, lowest and 95th percentile of each numeric field, and its
// ratio to each other contender with a confidence interval. With --system-calls each runs once
// more, and its system calls between the marks of bench/trace_marks.hpp are counted. The
// exit status is 1 if a contender fails or prints anything else.
//
// Compare copies of executables (cp), not what the linker has just written: that lies in small
// pages of the page cache, from which an open of ten tensors starts 10 to 15 % slower.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/count_system_calls.hpp"
#include "tools/bench/cold/process.hpp"
#include "tools/bench/cold/rounds.hpp"
#include "tools/bench/cold/statistics.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

struct Contender {
  std::string name;
  std::string command;
  std::vector<Json> runs;
  std::optional<std::uint64_t> system_calls;  // if requested
};

struct Options {
  std::vector<Contender> contenders;
  unsigned rounds = 7;
  std::uint64_t recycled_mib = process_memory >> 20;
  bool in_order = false;
  bool system_calls = false;
};

// Throws CLI::ValidationError for text that is not NAME=COMMAND, or a repeated NAME.
void add_contender(std::vector<Contender>& contenders, const std::string& text) {
  const std::size_t sign = text.find('=');
  if (sign == 0 || sign == std::string::npos || sign + 1 == text.size())
    throw CLI::ValidationError("\"" + printable(text) + "\" is not NAME=COMMAND");
  Contender added{text.substr(0, sign), text.substr(sign + 1), {}, {}};
  for (const Contender& contender : contenders)
    if (contender.name == added.name)
      throw CLI::ValidationError("\"" + printable(added.name) + "\" is the name of two contenders");
  contenders.push_back(std::move(added));
}

std::vector<std::string> words(const Contender& contender) {
  return {"/bin/sh", "-c", contender.command};
}

Result<void> trace(Contender& contender) {
  const Result<TracedRun> run = count_system_calls(words(contender));
  if (!run) return tl::unexpected<Error>(run.error());
  contender.system_calls = run->system_calls;
  return {};
}

Result<void> run_once(Contender& contender) {
  const Result<Finished> finished = run_process(words(contender));
  if (!finished) return tl::unexpected<Error>(finished.error());
  if (finished->exit_code != 0)
    return failure(ErrorCode::io, printable(contender.name) + ": " + failure_text(*finished));
  Json run = Json::parse(finished->output, nullptr, false);
  if (!run.is_object())
    return failure(ErrorCode::io, printable(contender.name) + ": printed no JSON object: " +
                                      printable(finished->output.substr(0, 80)));
  contender.runs.push_back(std::move(run));
  return {};
}

Result<void> measure(Options& options) {
  const Interruptible interruptible;
  std::vector<Contender>& contenders = options.contenders;
  ProgressLine progress(contenders.size() * options.rounds);
  Turns turns(contenders.size());
  for (unsigned round = 0; round < options.rounds; ++round) {
    const std::vector<std::size_t>& shuffled = turns.next_round();
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      Contender& contender = contenders[options.in_order ? i : shuffled[i]];
      progress.begin(printable(contender.name));
      recycle_memory(options.recycled_mib << 20);
      if (Result<void> ok = run_once(contender); !ok) return ok;
    }
  }
  if (!options.system_calls) return {};
  for (Contender& contender : contenders)
    if (Result<void> ok = trace(contender); !ok) return ok;
  return {};
}

// Returns one value for each run; nothing if a run lacks the number.
std::vector<double> values(const Contender& contender, const std::string& field) {
  std::vector<double> numbers;
  for (const Json& run : contender.runs) {
    const auto found = run.find(field);
    if (found == run.end() || !found->is_number()) return {};
    numbers.push_back(found->get<double>());
  }
  return numbers;
}

Json describe_summaries(const Contender& contender) {
  Json json = Json::object();
  for (const auto& [field, first] : contender.runs.front().items())
    if (std::vector<double> numbers = values(contender, field); !numbers.empty())
      json[field] = describe(summarize(std::move(numbers)));
  return json;
}

Json describe_ratios(const Contender& contender, const Contender& reference) {
  Json json = Json::object();
  for (const auto& [field, first] : contender.runs.front().items())
    if (const auto ratio = compare(values(contender, field), values(reference, field)))
      json[field] = describe(ratio);
  return json;
}

Json describe(const Options& options) {
  Json contenders = Json::object();
  for (const Contender& contender : options.contenders) {
    Json ratios = Json::object();
    for (const Contender& reference : options.contenders)
      if (&reference != &contender) ratios[reference.name] = describe_ratios(contender, reference);
    Json& described = contenders[contender.name];
    described = {{"runs", contender.runs},
                 {"summaries", describe_summaries(contender)},
                 {"ratios", std::move(ratios)}};
    if (contender.system_calls) described["system_calls"] = *contender.system_calls;
  }
  return {{"rounds", options.rounds},
          {"recycled_mib", options.recycled_mib},
          {"contenders", std::move(contenders)}};
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Runs programs in turns, in fresh processes, and compares their figures.");
  app.add_option("--rounds", options.rounds, "How often each runs; default: 7")
      ->check(CLI::Range(1, 1000));
  app.add_option("--recycle", options.recycled_mib,
                 "MiB of memory to touch and free before each; default: 512")
      ->check(CLI::Range(0, 1 << 20));
  app.add_flag("--in-order", options.in_order, "Each round in the order that is given");
  app.add_flag("--system-calls", options.system_calls, "Count those between the program's marks");
  app.add_option_function<std::vector<std::string>>(
         "NAME=COMMAND",
         [&options](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) add_contender(options.contenders, text);
         })
      ->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (const Result<void> ok = measure(options); !ok) {
    std::fprintf(stderr, "interleave: %s\n", to_string(ok.error()).c_str());
    return interrupted() ? exit_interrupted : 1;
  }
  std::cout << to_text(describe(options)) << std::endl;
  return std::cout.good() ? 0 : 1;
}

}  // namespace
}  // namespace weightmap::cli::bench

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // required by Process
  return weightmap::cli::bench::run(argc, argv);
}
