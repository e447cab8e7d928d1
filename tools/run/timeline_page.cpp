#include "tools/run/timeline_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/run/timeline_lanes.hpp"
#include "tools/support/html.hpp"
#include "tools/support/text.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::cli::start {
namespace {

// In pixels.
constexpr double width = 1000, plot_left = 210, plot_right = 980;
constexpr double names_top = 38, phases_top = 58, phases_height = 16;
constexpr double lanes_top = 88, lane_height = 64, lane_distance = 82;
constexpr double label_line = 15, letter = 6.5;
constexpr std::size_t most_steps = 400;
constexpr std::array<const char*, 2> series_colours = {"#2457a6", "#d1495b"};

const char* colour_of(StartPhase::Kind kind) {
  constexpr std::array colours = {"#8fb4e8", "#f2c14e", "#86c98e", "#c7a6e0",
                                  "#d5dae0", "#8fb4e8", "#86c98e"};
  return colours[kind];
}

std::string text_at(double x, double y, const std::string& attributes, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y,
                     attributes.empty() ? "" : " " + attributes, html(text));
}

std::string rectangle(double x, double y, double w, double h, const std::string& attributes) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" {}/>\n", x,
                     y, w, h, attributes);
}

std::string phase_text(const StartTimeline& timeline, const StartPhase& phase) {
  return fmt::format("{} {:.1f} s", to_string(phase.kind),
                     timeline.samples[phase.last].seconds - timeline.samples[phase.first].seconds);
}

class Picture {
 public:
  explicit Picture(const StartTimeline& timeline)
      : timeline_(timeline),
        thin_(thinned(timeline, most_steps)),
        phases_(phases_of(timeline)),
        lanes_(lanes_of(thin_)),
        bottom_(lanes_top + lane_distance * static_cast<double>(lanes_.size())) {}

  std::string svg() const {
    const double height = bottom_ + 30;
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" font-family=\"sans-serif\" "
        "font-size=\"12\" fill=\"#1b1f24\">\n",
        width, height);
    out += element("title", html(title())) + element("desc", html(description()));
    out += rectangle(0, 0, width, height, "fill=\"#ffffff\"");
    out += text_at(10, 25, "font-size=\"17\" font-weight=\"bold\"", title());
    out += phase_names() + phase_bar();
    for (std::size_t i = 0; i < lanes_.size(); ++i)
      out += lane(lanes_[i], lanes_top + lane_distance * static_cast<double>(i));
    return out + phase_ends() + time_axis() + "</svg>\n";
  }

  std::string title() const {
    return fmt::format("Start of {}: {:.1f} s until {}", timeline_.program, timeline_.seconds(),
                       timeline_.has_ended ? "it ended" : "it was ready");
  }

 private:
  std::string description() const {
    std::vector<std::string> parts;
    for (const StartPhase& phase : phases_) parts.push_back(phase_text(timeline_, phase));
    return joined_words(parts) + ".";
  }

  double x_at(double time) const {
    const double all = timeline_.seconds();
    return plot_left + (all > 0 ? time / all : 0) * (plot_right - plot_left);
  }
  double begin_of(const StartPhase& phase) const {
    return x_at(timeline_.samples[phase.first].seconds);
  }
  double end_of(const StartPhase& phase) const {
    return x_at(timeline_.samples[phase.last].seconds);
  }

  std::string phase_names() const {
    std::string out;
    double x = plot_left;
    for (const StartPhase& phase : phases_) {
      const std::string text = phase_text(timeline_, phase);
      out += rectangle(x, names_top, 11, 11, fmt::format("fill=\"{}\"", colour_of(phase.kind)));
      out += text_at(x + 16, names_top + 10, "", text);
      x += letter * static_cast<double>(text.size()) + 40;
    }
    return out;
  }

  std::string phase_bar() const {
    std::string out = text_at(10, phases_top + 12, "font-weight=\"bold\"", "phases");
    for (const StartPhase& phase : phases_)
      out += rectangle(begin_of(phase), phases_top, end_of(phase) - begin_of(phase), phases_height,
                       fmt::format("fill=\"{}\"", colour_of(phase.kind)));
    return out;
  }

  std::string lane(const Lane& lane, double top) const {
    std::string out = "<g>\n" + element("title", std::string(lane.title));
    out += text_at(10, top + 13, "font-weight=\"bold\"", std::string(lane.title));
    for (const StartPhase& phase : phases_)
      if (std::find(lane.phases.begin(), lane.phases.end(), phase.kind) != lane.phases.end())
        out += rectangle(begin_of(phase), top, end_of(phase) - begin_of(phase), lane_height,
                         fmt::format("fill=\"{}\" fill-opacity=\"0.35\"", colour_of(phase.kind)));
    double largest_of_all = 0;
    for (const LaneSeries& series : lane.series)
      largest_of_all = std::max(largest_of_all, largest(series));
    for (std::size_t i = 0; i < lane.series.size(); ++i) {
      const LaneSeries& series = lane.series[i];
      const double scale = lane.has_one_scale ? largest_of_all : largest(series);
      out += text_at(10, top + 13 + label_line * static_cast<double>(i + 1),
                     fmt::format("fill=\"{}\"", series_colours[i]),
                     std::string(series.name) + ": up to " + series.largest);
      if (scale > 0) out += curve(series, scale, top, i);
    }
    return out +
           rectangle(plot_left, top + lane_height, plot_right - plot_left, 1, "fill=\"#59636e\"") +
           "</g>\n";
  }

  static double largest(const LaneSeries& series) {
    return series.values.empty() ? 0
                                 : *std::max_element(series.values.begin(), series.values.end());
  }

  // Steps: the first series as an area, the second as a line over it.
  std::string curve(const LaneSeries& series, double scale, double top, std::size_t index) const {
    const double base = top + lane_height;
    std::string path = fmt::format("M{:.1f} {:.1f}", plot_left, base);
    for (std::size_t i = 0; i < series.values.size(); ++i)
      path += fmt::format("V{:.1f}H{:.1f}", base - series.values[i] / scale * (lane_height - 2),
                          x_at(thin_.samples[i + 1].seconds));
    if (index == 0) path += fmt::format("V{:.1f}Z", base);
    const std::string look =
        index == 0 ? fmt::format("fill=\"{0}\" fill-opacity=\"0.75\"", series_colours[0])
                   : fmt::format("fill=\"none\" stroke=\"{}\"", series_colours[index]);
    return fmt::format("<path d=\"{}\" {}/>\n", path, look);
  }

  std::string phase_ends() const {
    std::string out;
    for (const StartPhase& phase : phases_)
      out += fmt::format(
          "<path d=\"M{0:.1f} {1:.1f}V{2:.1f}\" stroke=\"#59636e\" stroke-dasharray=\"2 3\"/>\n",
          end_of(phase), phases_top + phases_height, bottom_ - lane_distance + lane_height);
    return out;
  }

  // Up to ten numbers, at whole ones, twos or fives.
  std::string time_axis() const {
    double step = 0.01;
    for (std::size_t i = 0; timeline_.seconds() / step > 10; ++i)
      step *= std::array{2.0, 2.5, 2.0}[i % 3];
    std::string out = text_at(10, bottom_ + 4, "font-weight=\"bold\"", "seconds");
    for (int i = 0; i * step <= timeline_.seconds(); ++i) {
      const double x = x_at(i * step);
      out += rectangle(x, bottom_ - lane_distance + lane_height, 1, 5, "fill=\"#59636e\"");
      out += text_at(x, bottom_ + 4, "text-anchor=\"middle\"",
                     fmt::format("{:g}", std::round(i * step * 100) / 100));
    }
    return out;
  }

  const StartTimeline& timeline_;
  const StartTimeline thin_;
  const std::vector<StartPhase> phases_;
  const std::vector<Lane> lanes_;
  const double bottom_;
};

std::string row(const std::string& name, const StartSample& step) {
  const ProcessCounts& counts = step.counts;
  std::string out = "<tr><th scope=\"row\">" + html(name) + "</th>";
  for (const std::string& cell :
       {fmt::format("{:.2f}", step.seconds),
        fmt::format("{:.2f}", counts.user_seconds + counts.system_seconds),
        fmt::format("{:.2f}", counts.system_seconds),
        counts.disk_wait ? fmt::format("{:.2f}", *counts.disk_wait) : std::string("-"),
        std::to_string(counts.major_faults), std::to_string(counts.minor_faults),
        human_bytes(counts.read_bytes), human_bytes(step.reader_bytes),
        std::to_string(step.code_files), human_bytes(step.weight_bytes),
        human_bytes(counts.anonymous_bytes), human_bytes(counts.file_bytes)})
    out += "<td>" + cell + "</td>";
  return out + "</tr>\n";
}

std::string phase_table(const StartTimeline& timeline) {
  std::string out = "<div class=\"wide\"><table>\n<thead><tr>";
  for (const char* const title :
       {"phase", "seconds", "of processors", "in the system", "waited for the disk", "major faults",
        "minor faults", "from the disk", "by the reader", "code files", "weights opened",
        "anonymous memory", "memory of files"})
    out += std::string("<th scope=\"col\">") + title + "</th>";
  out += "</tr></thead>\n<tbody>\n";
  for (const StartPhase& phase : phases_of(timeline))
    out += row(std::string(to_string(phase.kind)),
               difference(timeline.samples[phase.first], timeline.samples[phase.last]));
  if (!timeline.samples.empty())
    out += row("all", difference(timeline.samples.front(), timeline.samples.back()));
  return out + "</tbody></table></div>\n";
}

}  // namespace

std::string timeline_svg(const StartTimeline& timeline) { return Picture(timeline).svg(); }

std::string timeline_page(const StartTimeline& timeline) {
  const Picture picture(timeline);
  return html_page(
      picture.title(),
      element("h1", html(picture.title())) + "<div class=\"wide\">" + picture.svg() + "</div>\n" +
          element("h2", "The phases") + phase_table(timeline) +
          element("p class=\"soft\"",
                  "As seen from outside, several times a second: code is what was opened before "
                  "the weights, model creation ends when they are opened, and weights when nothing "
                  "more came in. Times of processors count all that the command had at work; a "
                  "dash: the system does not count it (kernel.task_delayacct)."));
}

bool is_timeline_name(const std::filesystem::path& path) {
  return path.extension() == ".html" || path.extension() == ".svg";
}

Result<void> write_timeline(const StartTimeline& timeline, const std::filesystem::path& path) {
  const std::string text =
      path.extension() == ".svg" ? timeline_svg(timeline) : timeline_page(timeline);
  NewFileOptions options;
  options.durable = false;
  TRY_ASSIGN(NewFile file, NewFile::create(path, options));
  TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace weightmap::cli::start
