#include "tools/bench/remote_report.hpp"

#include <optional>
#include <vector>

#include "bench/cold/numbers.hpp"
#include "bench/cold/statistics.hpp"
#include "tools/support/columns.hpp"
#include "tools/support/text.hpp"
#include "weightmap/version.hpp"

namespace weightmap::cli::bench {
namespace {

struct Row {
  std::string_view contender;
  Summary seconds, cpu_seconds;
  double mib_per_second, cpu_seconds_per_gib;
  double requests, received_bytes, received_twice_bytes;  // medians
  std::optional<Ratio> time_ratio, cpu_ratio;             // nothing for the reference
};

Row row_of(const RemoteResults& results, const RemoteSeries& series) {
  const RemoteSeries& reference = results.series.front();
  const auto bytes = static_cast<double>(results.file_bytes);
  const auto summary = [&](const char* field) { return summarize(series.values(field)); };
  const auto ratio = [&](const char* field) -> std::optional<Ratio> {
    if (&series == &reference) return std::nullopt;
    return compare(series.values(field), reference.values(field));
  };
  const Summary seconds = summary("seconds"), cpu_seconds = summary("cpu_seconds");
  return {series.contender,
          seconds,
          cpu_seconds,
          bytes / (1 << 20) / seconds.median,
          cpu_seconds.median / (bytes / (1 << 30)),
          summary("requests").median,
          summary("received_bytes").median,
          summary("received_twice_bytes").median,
          ratio("seconds"),
          ratio("cpu_seconds")};
}

std::vector<std::string> cells_of(const Row& row) {
  const auto text = [](const std::optional<Ratio>& ratio) {
    return ratio ? ratio_text(*ratio) : "1";
  };
  return {std::string(row.contender),
          duration(row.seconds.median * 1000),
          short_number(row.mib_per_second),
          text(row.time_ratio),
          short_number(row.cpu_seconds_per_gib),
          text(row.cpu_ratio),
          short_count(row.requests),
          short_bytes(row.received_twice_bytes)};
}

Json describe_row(const Row& row, const RemoteSeries& series) {
  return {{"contender", row.contender},
          {"samples", series.samples},
          {"seconds", describe(row.seconds)},
          {"cpu_seconds", describe(row.cpu_seconds)},
          {"mib_per_second", row.mib_per_second},
          {"cpu_seconds_per_gib", row.cpu_seconds_per_gib},
          {"requests", row.requests},
          {"received_bytes", row.received_bytes},
          {"received_twice_bytes", row.received_twice_bytes},
          {"time_ratio", describe(row.time_ratio)},
          {"cpu_ratio", describe(row.cpu_ratio)}};
}

}  // namespace

std::string remote_text(const RemoteResults& results) {
  constexpr Column::Align right = Column::right;
  std::vector<std::vector<std::string>> rows;
  for (const RemoteSeries& series : results.series)
    rows.push_back(cells_of(row_of(results, series)));
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
    contenders.push_back(describe_row(row_of(results, series), series));
  return {{"url", results.url},
          {"version", WEIGHTMAP_VERSION},
          {"file_bytes", results.file_bytes},
          {"rounds", results.rounds},
          {"recycled_memory", results.recycled_memory},
          {"contenders", contenders}};
}

}  // namespace weightmap::cli::bench
