#include "tools/run/timeline_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tools/run/timeline_lanes.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::start {
namespace {

constexpr std::string_view shades = " .:-=+*#";

struct Line {
  std::string name;
  std::string bar;
  std::string remark;
};

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
Line shaded_line(const StartTimeline& timeline, std::string name, const LaneSeries& series,
                 std::size_t cells) {
  std::vector<double> darkest(cells, 0);
  double largest = 0;
  for (std::size_t i = 0; i < series.values.size(); ++i) {
    const std::size_t begin =
        std::min(cell_of(timeline, timeline.samples[i].seconds, cells), cells - 1);
    const std::size_t end =
        std::max(cell_of(timeline, timeline.samples[i + 1].seconds, cells), begin + 1);
    for (std::size_t cell = begin; cell < end; ++cell)
      darkest[cell] = std::max(darkest[cell], series.values[i]);
    largest = std::max(largest, series.values[i]);
  }
  std::string bar;
  for (const double value : darkest) {
    const double part = largest > 0 ? value / largest : 0;
    bar += shades[static_cast<std::size_t>(part * static_cast<double>(shades.size() - 1) + 0.5)];
  }
  return {name, bar, "up to " + series.largest};
}

}  // namespace

std::vector<std::string> timeline_lines(const StartTimeline& timeline, bool all,
                                        std::size_t width) {
  std::vector<Line> lines;
  for (const StartPhase& phase : phases_of(timeline))
    lines.push_back(phase_line(timeline, phase, width));
  for (const Lane& lane : lanes_of(timeline))
    if (all || !lane.is_of_phase)
      for (const LaneSeries& series : lane.series)
        lines.push_back(
            shaded_line(timeline, fmt::format("{}, {}", lane.title, series.name), series, width));
  std::size_t longest = 0;
  for (const Line& line : lines) longest = std::max(longest, line.name.size());
  std::vector<std::string> texts;
  for (const Line& line : lines)
    texts.push_back(fmt::format("{:<{}} [{}] {}", line.name, longest, line.bar, line.remark));
  return texts;
}

}  // namespace weightmap::cli::start
