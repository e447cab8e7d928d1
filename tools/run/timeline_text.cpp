#include "tools/run/timeline_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "tools/support/text.hpp"

namespace weightmap::cli::start {
namespace {

constexpr std::string_view shades = " .:-=+*#";

struct Line {
  std::string name;
  std::string bar;
  std::string remark;
};

using Step = const StartSample&;

double number(std::uint64_t value) { return static_cast<double>(value); }
std::string bytes_text(double bytes) { return human_bytes(static_cast<std::uint64_t>(bytes)); }
std::string byte_rate(double bytes) { return bytes_text(bytes) + "/s"; }
std::string plain_rate(double number) { return fmt::format("{:.0f}/s", number); }
std::string tenths(double number) { return fmt::format("{:.1f}", number); }

double code_files(Step s) { return number(s.code_files); }
double processors(Step s) { return s.counts.user_seconds + s.counts.system_seconds; }
double system_time(Step s) { return s.counts.system_seconds; }
double weight_bytes(Step s) { return number(s.weight_bytes); }
double called_bytes(Step s) { return number(s.counts.called_bytes); }
double major_faults(Step s) { return number(s.counts.major_faults); }
double minor_faults(Step s) { return number(s.counts.minor_faults); }
double disk_bytes(Step s) { return number(s.counts.read_bytes); }
double reader_bytes(Step s) { return number(s.reader_bytes); }
double anonymous_bytes(Step s) { return number(s.counts.anonymous_bytes); }
double file_bytes(Step s) { return number(s.counts.file_bytes); }

struct LaneKind {
  enum Of : std::uint8_t { start, restore, both } of;
  std::string_view title, name;
  double (*value)(Step);
  bool is_rate;  // the growth in a second of a number that grows
  std::string (*text)(double value);
};

constexpr LaneKind kinds[] = {
    {LaneKind::start, "imports", "code files", code_files, true, plain_rate},
    {LaneKind::start, "model creation", "processors", processors, true, tenths},
    {LaneKind::start, "model creation", "in the system", system_time, true, tenths},
    {LaneKind::start, "loads", "weights open", weight_bytes, false, bytes_text},
    {LaneKind::start, "loads", "read by calls", called_bytes, false, bytes_text},
    {LaneKind::restore, "image", "read by calls", called_bytes, false, bytes_text},
    {LaneKind::restore, "first use", "processors", processors, true, tenths},
    {LaneKind::restore, "first use", "in the system", system_time, true, tenths},
    {LaneKind::both, "faults", "major", major_faults, true, plain_rate},
    {LaneKind::both, "faults", "minor", minor_faults, true, plain_rate},
    {LaneKind::both, "disk rate", "command", disk_bytes, true, byte_rate},
    {LaneKind::both, "disk rate", "reader", reader_bytes, true, byte_rate},
    {LaneKind::both, "memory", "anonymous", anonymous_bytes, false, bytes_text},
    {LaneKind::both, "memory", "of files", file_bytes, false, bytes_text},
};

TimelineLane lane_of(const std::vector<StartSample>& samples, const LaneKind& kind) {
  TimelineLane lane{kind.title, kind.name, kind.of != LaneKind::both, {}, {}};
  double largest = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const StartSample step = difference(samples[i - 1], samples[i]);
    const double rate = step.seconds > 0 ? kind.value(step) / step.seconds : 0;
    lane.values.push_back(kind.is_rate ? rate : kind.value(samples[i]));
    largest = std::max(largest, lane.values.back());
  }
  lane.largest = kind.text(largest);
  return lane;
}

// Returns which of the cells a time lies in; `cells` for the end.
std::size_t cell_of(const StartTimeline& timeline, double time, std::size_t cells) {
  const double part = timeline.seconds() > 0 ? time / timeline.seconds() : 0;
  return std::min(cells, static_cast<std::size_t>(part * static_cast<double>(cells)));
}

Line phase_line(const StartTimeline& timeline, const StartPhase& phase, std::size_t cells) {
  const StartSample &first = timeline.samples[phase.first], &last = timeline.samples[phase.last];
  const std::size_t begin = std::min(cell_of(timeline, first.seconds, cells), cells - 1);
  const std::size_t end = std::max(cell_of(timeline, last.seconds, cells), begin + 1);
  std::string bar(cells, '.');
  std::fill(bar.begin() + static_cast<std::ptrdiff_t>(begin),
            bar.begin() + static_cast<std::ptrdiff_t>(end), '#');
  const StartSample step = difference(first, last);
  return {std::string(to_string(phase.kind)), bar,
          fmt::format("{:.1f} s, {:.1f} s of processors, {} from the disk", step.seconds,
                      step.counts.user_seconds + step.counts.system_seconds,
                      human_bytes(step.counts.read_bytes))};
}

// Each cell is as dark as the largest value in its time.
Line shaded_line(const StartTimeline& timeline, const TimelineLane& lane, std::size_t cells) {
  std::vector<double> darkest(cells, 0);
  double largest = 0;
  for (std::size_t i = 0; i < lane.values.size(); ++i) {
    const std::size_t begin =
        std::min(cell_of(timeline, timeline.samples[i].seconds, cells), cells - 1);
    const std::size_t end =
        std::max(cell_of(timeline, timeline.samples[i + 1].seconds, cells), begin + 1);
    for (std::size_t cell = begin; cell < end; ++cell)
      darkest[cell] = std::max(darkest[cell], lane.values[i]);
    largest = std::max(largest, lane.values[i]);
  }
  std::string bar;
  for (const double value : darkest) {
    const double part = largest > 0 ? value / largest : 0;
    bar += shades[static_cast<std::size_t>(part * static_cast<double>(shades.size() - 1) + 0.5)];
  }
  return {fmt::format("{}, {}", lane.title, lane.name), bar, "up to " + lane.largest};
}

}  // namespace

std::vector<TimelineLane> lanes_of(const StartTimeline& timeline) {
  const LaneKind::Of other = timeline.restore ? LaneKind::start : LaneKind::restore;
  std::vector<TimelineLane> lanes;
  for (const LaneKind& kind : kinds)
    if (kind.of != other) lanes.push_back(lane_of(timeline.samples, kind));
  return lanes;
}

std::vector<std::string> timeline_lines(const StartTimeline& timeline, bool all,
                                        std::size_t width) {
  std::vector<Line> lines;
  for (const StartPhase& phase : phases_of(timeline))
    lines.push_back(phase_line(timeline, phase, width));
  for (const TimelineLane& lane : lanes_of(timeline))
    if (all || !lane.is_of_phase) lines.push_back(shaded_line(timeline, lane, width));
  std::size_t longest = 0;
  for (const Line& line : lines) longest = std::max(longest, line.name.size());
  std::vector<std::string> texts;
  for (const Line& line : lines)
    texts.push_back(fmt::format("{:<{}} [{}] {}", line.name, longest, line.bar, line.remark));
  return texts;
}

}  // namespace weightmap::cli::start
