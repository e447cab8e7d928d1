#include "tools/run/timeline_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tools/run/timeline_lanes.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::start {
namespace {

constexpr std::size_t cells = 40;
constexpr std::string_view shades = " .:-=+*#";

std::string line(std::string_view name, const std::string& bar, const std::string& remark) {
  return fmt::format("{:<18} [{}] {}", name, bar, remark);
}

// Returns the cell in which a time lies; `cells` for the end.
std::size_t cell_of(const StartTimeline& timeline, double time) {
  const double part = timeline.seconds() > 0 ? time / timeline.seconds() : 0;
  return std::min(cells, static_cast<std::size_t>(part * cells));
}

std::string phase_line(const StartTimeline& timeline, const StartPhase& phase) {
  const StartSample &first = timeline.samples[phase.first], &last = timeline.samples[phase.last];
  const std::size_t begin = std::min(cell_of(timeline, first.seconds), cells - 1);
  const std::size_t end = std::max(cell_of(timeline, last.seconds), begin + 1);
  std::string bar(cells, '.');
  std::fill(bar.begin() + static_cast<std::ptrdiff_t>(begin),
            bar.begin() + static_cast<std::ptrdiff_t>(end), '#');
  const StartSample step = difference(first, last);
  return line(to_string(phase.kind), bar,
              fmt::format("{:.1f} s, {:.1f} s of processors, {} from the disk", step.seconds,
                          step.counts.user_seconds + step.counts.system_seconds,
                          human_bytes(step.counts.read_bytes)));
}

// Each cell is as dark as the largest value in its time.
std::string shaded_line(const StartTimeline& timeline, std::string_view name,
                        const LaneSeries& series) {
  std::vector<double> darkest(cells, 0);
  double largest = 0;
  for (std::size_t i = 0; i < series.values.size(); ++i) {
    const std::size_t begin = std::min(cell_of(timeline, timeline.samples[i].seconds), cells - 1);
    const std::size_t end = std::max(cell_of(timeline, timeline.samples[i + 1].seconds), begin + 1);
    for (std::size_t cell = begin; cell < end; ++cell)
      darkest[cell] = std::max(darkest[cell], series.values[i]);
    largest = std::max(largest, series.values[i]);
  }
  std::string bar;
  for (const double value : darkest) {
    const double part = largest > 0 ? value / largest : 0;
    bar += shades[static_cast<std::size_t>(part * static_cast<double>(shades.size() - 1) + 0.5)];
  }
  return line(name, bar, "up to " + series.largest);
}

}  // namespace

std::vector<std::string> timeline_lines(const StartTimeline& timeline) {
  std::vector<std::string> lines;
  for (const StartPhase& phase : phases_of(timeline)) lines.push_back(phase_line(timeline, phase));
  for (const Lane& lane : lanes_of(timeline))
    if (lane.phases.empty())
      for (const LaneSeries& series : lane.series)
        lines.push_back(shaded_line(
            timeline, std::string(lane.title) + ", " + std::string(series.name), series));
  return lines;
}

}  // namespace weightmap::cli::start
