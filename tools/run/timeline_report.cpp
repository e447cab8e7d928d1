#include "tools/run/timeline_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "tools/support/files.hpp"
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
std::string plain_rate(double value) { return fmt::format("{:.0f}/s", value); }
std::string tenths(double value) { return fmt::format("{:.1f}", value); }

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

// In characters.
constexpr std::size_t bar_width = 100;

constexpr std::string_view style_sheet = R"(
:root { color-scheme: light dark; --page: #fff; --text: #1b1f24; --soft: #59636e; --line: #d5dae0; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --text: #e3e8ee; --soft: #9ca7b3;
  --line: #363e48; } }
body { margin: 0 auto; padding: 1.5rem 1rem; max-width: 76rem; background: var(--page);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { border-top: 2px solid var(--line); padding-top: 1rem; }
h1, h2, p { overflow-wrap: anywhere; }
p { max-width: 50rem; }
.soft { color: var(--soft); }
.wide, pre { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .55rem; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--line); }
td { white-space: nowrap; }
tbody th { text-align: left; min-width: 9rem; }
@media print { @page { size: landscape; margin: 12mm; } table { font-size: 6.5pt; } }
)";

// &, <, >, " and ' become character references.
std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

// <NAME>CONTENT</NAME>; the name may have attributes behind it.
std::string element(const std::string& name, const std::string& content) {
  return "<" + name + ">" + content + "</" + name.substr(0, name.find(' ')) + ">\n";
}

// A page that may load nothing.
std::string html_page(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
         element("title", title) + element("style", std::string(style_sheet)) +
         "</head>\n<body>\n" + body + "</body>\n</html>\n";
}

std::string title_of(const StartTimeline& timeline) {
  return fmt::format("Start of {}: {:.1f} s until {}", timeline.program, timeline.seconds(),
                     timeline.has_ended ? "it ended" : "it was ready");
}

std::string bars(const StartTimeline& timeline) {
  std::string text;
  for (const std::string& line : timeline_lines(timeline, true, bar_width)) text += line + "\n";
  return "<div class=\"wide\">" + element("pre", escaped(text)) + "</div>\n";
}

std::string row(const std::string& name, const StartSample& step) {
  const ProcessCounts& counts = step.counts;
  std::string out = "<tr><th scope=\"row\">" + name + "</th>";
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

std::string timeline_page(const StartTimeline& timeline) {
  const std::string title = escaped(printable(title_of(timeline)));
  return html_page(
      title,
      element("h1", title) + bars(timeline) + element("h2", "The phases") + phase_table(timeline) +
          element("p class=\"soft\"",
                  "As seen from outside, several times a second: code is what was opened before "
                  "the weights, model creation ends when they are opened, and weights when nothing "
                  "more came in. Times of processors count all that the command had at work; a "
                  "dash: the system does not count it (kernel.task_delayacct)."));
}

bool is_timeline_name(const std::filesystem::path& path) { return path.extension() == ".html"; }

Result<void> write_timeline(const StartTimeline& timeline, const std::filesystem::path& path) {
  return replace_file(path, timeline_page(timeline));
}

}  // namespace weightmap::cli::start
