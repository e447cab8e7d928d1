#include "tools/bench/remote_report.hpp"

#include <optional>
#include <vector>

#include "tools/bench/cold/numbers.hpp"
#include "tools/bench/cold/statistics.hpp"
#include "tools/support/columns.hpp"
#include "tools/support/text.hpp"
#include "weightmap/version.hpp"

namespace weightmap::cli::bench {
namespace {

// One contender's figures.
struct Row {
  const RemoteResults& results;
  const RemoteSeries& series;

  Summary summary(const char* field) const { return summarize(series.values(field)); }
  // Nothing for the reference.
  std::optional<Ratio> ratio(const char* field) const {
    const RemoteSeries& reference = results.series.front();
    if (&series == &reference) return std::nullopt;
    return compare(series.values(field), reference.values(field));
  }
  double mib_per_second() const {
    return static_cast<double>(results.file_bytes) / (1 << 20) / summary("seconds").median;
  }
  double cpu_seconds_per_gib() const {
    return summary("cpu_seconds").median / (static_cast<double>(results.file_bytes) / (1 << 30));
  }
};

std::vector<std::string> cells_of(const Row& row) {
  const auto ratio = [&row](const char* field) {
    const std::optional<Ratio> found = row.ratio(field);
    return found ? ratio_text(*found) : "1";
  };
  return {std::string(row.series.contender),
          duration(row.summary("seconds").median * 1000),
          short_number(row.mib_per_second()),
          ratio("seconds"),
          short_number(row.cpu_seconds_per_gib()),
          ratio("cpu_seconds"),
          short_count(row.summary("requests").median),
          short_bytes(row.summary("received_twice_bytes").median)};
}

Json describe_row(const Row& row) {
  Json json = {{"contender", row.series.contender}, {"samples", row.series.samples}};
  for (const auto& [field, value] : row.series.samples.front().items())
    json[field] = describe(row.summary(field.c_str()));
  json["mib_per_second"] = row.mib_per_second();
  json["cpu_seconds_per_gib"] = row.cpu_seconds_per_gib();
  json["time_ratio"] = describe(row.ratio("seconds"));
  json["cpu_ratio"] = describe(row.ratio("cpu_seconds"));
  return json;
}

}  // namespace

std::string remote_text(const RemoteResults& results) {
  constexpr Column::Align right = Column::right;
  std::vector<std::vector<std::string>> rows;
  for (const RemoteSeries& series : results.series) rows.push_back(cells_of({results, series}));
  return printable(results.url) + ": " + human_bytes(results.file_bytes) + "\n\n" +
         to_columns({{"CONTENDER"},
                     {"MEDIAN", right},
                     {"MiB/s", right},
                     {"TIME TO LIBCURL", right},
                     {"CPU-S/GiB", right},
                     {"CPU TO LIBCURL", right},
                     {"REQUESTS", right},
                     {"TWICE", right}},
                    rows) +
         "\n" + count(results.rounds, "round") + ", every sample a fresh process; memory " +
         (results.recycled_memory ? "touched and freed before each" : "as the system gives it") +
         ".\nlibcurl throws away what it gets. The ratios are those to it, with their intervals: 2 "
         "is twice as long.\n";
}

Json remote_json(const RemoteResults& results) {
  Json contenders = Json::array();
  for (const RemoteSeries& series : results.series)
    contenders.push_back(describe_row({results, series}));
  return {{"url", results.url},
          {"version", WEIGHTMAP_VERSION},
          {"file_bytes", results.file_bytes},
          {"rounds", results.rounds},
          {"recycled_memory", results.recycled_memory},
          {"contenders", contenders}};
}

}  // namespace weightmap::cli::bench
