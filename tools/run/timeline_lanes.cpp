#include "tools/run/timeline_lanes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "tools/support/text.hpp"

namespace weightmap::cli::start {
namespace {

using Value = std::function<double(const StartSample& step)>;
using Unit = std::function<std::string(double value)>;

std::string bytes_text(double bytes) { return human_bytes(static_cast<std::uint64_t>(bytes)); }
std::string byte_rate(double bytes) { return bytes_text(bytes) + "/s"; }
std::string plain_rate(double number) { return fmt::format("{:.0f}/s", number); }
std::string tenths(double number) { return fmt::format("{:.1f}", number); }

class Series {
 public:
  explicit Series(const StartTimeline& timeline) noexcept : samples_(timeline.samples) {}

  // Of a number that grows: the growth in a second.
  LaneSeries rate(std::string_view name, const Value& value, const Unit& unit) const {
    std::vector<double> values;
    for (std::size_t i = 1; i < samples_.size(); ++i) {
      const StartSample step = difference(samples_[i - 1], samples_[i]);
      values.push_back(step.seconds > 0 ? value(step) / step.seconds : 0);
    }
    return make(name, std::move(values), unit);
  }

  LaneSeries amount(std::string_view name, const Value& value, const Unit& unit) const {
    std::vector<double> values;
    for (std::size_t i = 1; i < samples_.size(); ++i) values.push_back(value(samples_[i]));
    return make(name, std::move(values), unit);
  }

 private:
  static LaneSeries make(std::string_view name, std::vector<double> values, const Unit& unit) {
    const double largest = values.empty() ? 0 : *std::max_element(values.begin(), values.end());
    return {name, std::move(values), unit(largest)};
  }

  const std::vector<StartSample>& samples_;
};

double number(std::uint64_t value) { return static_cast<double>(value); }

using Step = const StartSample&;

double processors(Step s) { return s.counts.user_seconds + s.counts.system_seconds; }
double system_time(Step s) { return s.counts.system_seconds; }
double called_bytes(Step s) { return number(s.counts.called_bytes); }

void add_lanes_of_start(const Series& series, std::vector<Lane>& lanes) {
  lanes.push_back({"imports",
                   true,
                   {series.rate(
                       "code files", [](Step s) { return number(s.code_files); }, plain_rate)}});
  lanes.push_back({"model creation",
                   true,
                   {series.rate("processors", processors, tenths),
                    series.rate("in the system", system_time, tenths)}});
  lanes.push_back({"loads",
                   true,
                   {series.amount(
                        "weights open", [](Step s) { return number(s.weight_bytes); }, bytes_text),
                    series.amount("read by calls", called_bytes, bytes_text)}});
}

void add_lanes_of_restore(const Series& series, std::vector<Lane>& lanes) {
  lanes.push_back({"image", true, {series.amount("read by calls", called_bytes, bytes_text)}});
  lanes.push_back({"first use",
                   true,
                   {series.rate("processors", processors, tenths),
                    series.rate("in the system", system_time, tenths)}});
}

}  // namespace

std::vector<Lane> lanes_of(const StartTimeline& timeline) {
  const Series series(timeline);
  std::vector<Lane> lanes;
  if (timeline.restore)
    add_lanes_of_restore(series, lanes);
  else
    add_lanes_of_start(series, lanes);
  lanes.push_back(
      {"faults",
       false,
       {series.rate(
            "major", [](Step s) { return number(s.counts.major_faults); }, plain_rate),
        series.rate(
            "minor", [](Step s) { return number(s.counts.minor_faults); }, plain_rate)}});
  lanes.push_back({"disk rate",
                   false,
                   {series.rate(
                        "command", [](Step s) { return number(s.counts.read_bytes); }, byte_rate),
                    series.rate(
                        "reader", [](Step s) { return number(s.reader_bytes); }, byte_rate)}});
  lanes.push_back(
      {"memory",
       false,
       {series.amount(
            "anonymous", [](Step s) { return number(s.counts.anonymous_bytes); }, bytes_text),
        series.amount(
            "of files", [](Step s) { return number(s.counts.file_bytes); }, bytes_text)}});
  return lanes;
}

}  // namespace weightmap::cli::start
