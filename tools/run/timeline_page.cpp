#include "tools/run/timeline_page.hpp"

#include <fmt/format.h>

#include <span>
#include <string_view>

#include "runtime/base/try.hpp"
#include "tools/run/timeline_text.hpp"
#include "tools/support/text.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::cli::start {
namespace {

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
  const std::string text = timeline_page(timeline);
  NewFileOptions options;
  options.durable = false;
  TRY_ASSIGN(NewFile file, NewFile::create(path, options));
  TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace weightmap::cli::start
