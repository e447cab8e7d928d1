#include "tools/bench/start_report.hpp"

#include <vector>

#include "tools/bench/cold/numbers.hpp"
#include "tools/bench/cold/report_text.hpp"
#include "tools/bench/cold/statistics.hpp"
#include "tools/support/columns.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

std::optional<Ratio> ratio_of(const StateResults& state, const StartSeries& series) {
  const StartSeries& reference = state.series.front();
  if (&series == &reference) return std::nullopt;
  return compare(series.samples_ms, reference.samples_ms);
}

std::string title_of(const StartResults& results) {
  return "Starts of " + printable(results.program);
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

std::string start_text(const StartResults& results) {
  std::string out = title_of(results) + ". " + facts_of(results) + "\n";
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
