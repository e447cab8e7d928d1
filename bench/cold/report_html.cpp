#include "bench/cold/report_html.hpp"

#include <algorithm>
#include <array>

#include "bench/cold/chart_svg.hpp"
#include "bench/cold/fields.hpp"
#include "bench/cold/findings.hpp"
#include "bench/cold/numbers.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

// Blue and orange are told apart by every kind of colour vision; the reference is also in bold.
constexpr std::string_view style_sheet = R"(
:root { color-scheme: light dark; --page: #fff; --text: #1b1f24; --soft: #59636e; --line: #d5dae0;
  --other: #0066aa; --reference: #c24e00; --again: #767f89; --alarm: #fdecd9; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --text: #e3e8ee; --soft: #9ca7b3;
  --line: #363e48; --other: #56b4e9; --reference: #f0a030; --again: #8a939d; --alarm: #47300f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 76rem; background: var(--page);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.35rem; margin: 3rem 0 0; border-top: 2px solid var(--line); padding-top: 1rem; }
h3 { font-size: 1.05rem; margin: 1.25rem 0 .25rem; }
h1, h2, td, dd, li, p { overflow-wrap: anywhere; }
p, ul, .alarm { margin: .5rem 0; max-width: 50rem; }
.soft { color: var(--soft); }
.alarm { background: var(--alarm); border-left: 4px solid var(--reference);
  padding: .5rem .75rem; }
.wide { overflow-x: auto; }
.chart { display: block; width: 100%; min-width: 20rem; max-width: 50rem; height: auto;
  font: 13px system-ui, sans-serif; }
.chart text { fill: var(--text); stroke: var(--page); stroke-width: 4px; paint-order: stroke;
  stroke-linejoin: round; }
.chart .axis { fill: var(--soft); }
.chart .grid { stroke: var(--line); }
.chart .baseline { stroke: var(--reference); stroke-dasharray: 4 4; }
.chart .figure { font-variant-numeric: tabular-nums; }
.chart g.reference text { font-weight: 700; }
.dot { fill-opacity: .45; }
.median { stroke-width: 3; }
.other .dot { fill: var(--other); } .other .median { stroke: var(--other); }
.reference .dot { fill: var(--reference); } .reference .median { stroke: var(--reference); }
.again .dot { fill: var(--again); } .again .median { stroke: var(--again); }
table { border-collapse: collapse; font-size: .82rem; line-height: 1.35;
  font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .55rem; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--line); white-space: nowrap; overflow-wrap: normal; }
thead th { vertical-align: bottom; white-space: normal; font-weight: 600; }
tbody th { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 9rem;
  position: sticky; left: 0; background: var(--page); }
thead th:first-child { text-align: left; }
td.why { text-align: left; white-space: normal; }
small { display: block; font-size: .92em; font-weight: 400; color: var(--soft); }
tr.reference th { color: var(--reference); }
dt { font-weight: 600; margin-top: .5rem; } dd { margin: 0 0 0 1rem; max-width: 50rem; }
@media (max-width: 40rem) { tbody th { min-width: 6.5rem; max-width: 8.5rem; }
  .chart { font-size: 17px; } }
@media print { :root { color-scheme: light; --page: #fff; --text: #000; --soft: #444; --line: #bbb;
    --other: #0066aa; --reference: #a84300; --again: #666; --alarm: #fff; }
  @page { size: landscape; margin: 12mm; } body { max-width: none; padding: 0; font-size: 10pt; }
  .wide { overflow: visible; } table { font-size: 6.5pt; } th, td { padding: .2rem .25rem; }
  tbody th { position: static; min-width: 0; } .chart, tr, .alarm { break-inside: avoid; }
  .chart { max-width: 15cm; } h2, h3 { break-after: avoid; } }
)";

// What comes from strangers: no control characters, no marks that turn the direction, no markup.
std::string html(const std::string& text) { return escaped(printable(text)); }

std::string element(const std::string& name, const std::string& content) {
  return "<" + name + ">" + content + "</" + name.substr(0, name.find(' ')) + ">\n";
}

std::string paragraph(const std::string& text) { return element("p", escaped(text)); }

std::string term(const std::string& name, const std::string& meaning) {
  return element("dt", name) + element("dd", meaning);
}

// Verdicts.

std::string aa_paragraph(const Results& results, const Section& section) {
  if (!section.aa) return "";
  const std::string text = escaped(aa_text(results, *section.aa));
  return section.aa->passed ? element("p class=\"soft\"", text)
                            : element("p class=\"alarm\"", "<strong>" + text + "</strong>");
}

std::string verdict(const FileResults& file, const Section& section) {
  if (section.findings.empty()) return "";
  std::string out = element("li", escaped(headline(section, file)));
  for (const std::string& sentence : comparison(section)) out += element("li", escaped(sentence));
  return element("h3", escaped(name_of(section))) + element("ul", out);
}

std::string verdicts(const Results& results, const FileResults& file,
                     const std::vector<Section>& all) {
  std::string out;
  for (const Section& section : all) {
    out += verdict(file, section);
    if (section.aa && !section.aa->passed) out += aa_paragraph(results, section);
  }
  return out;
}

std::string aa_summary(const std::vector<Section>& all) {
  std::size_t made = 0, failed = 0;
  for (const Section& section : all) {
    if (section.aa) ++made;
    if (section.aa && !section.aa->passed) ++failed;
  }
  if (made == 0) return element("p class=\"alarm\"", "A/A check: not made.");
  const std::string checks = count(made, "check");
  if (failed == 0) return element("p", "A/A: " + checks + ", none failed.");
  return element("p class=\"alarm\"",
                 "<strong>A/A: " + std::to_string(failed) + " of " + checks + " failed.</strong>");
}

// Charts.

DotRow::Style style_of(Standing standing) {
  if (standing == Standing::reference) return DotRow::reference;
  return standing == Standing::again ? DotRow::again : DotRow::other;
}

std::string label(const Finding& finding) {
  const std::string& name = finding.series->engine;
  return printable(name) + (finding.title == name ? "" : ": " + printable(finding.title));
}

std::string chart(const Section& section, const std::string& axis, double Sample::*time) {
  DotChart out{name_of(section) + ": " + axis, axis, {}};
  for (const Finding& finding : section.findings) {
    const std::vector<double> all = values(*finding.series, time);
    out.rows.push_back({label(finding), all, summarize(all).median, style_of(finding.standing)});
  }
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const DotRow& a, const DotRow& b) { return a.median < b.median; });
  return "<div class=\"wide\">" + dot_chart(out) + "</div>\n";
}

// Tables.

std::string cell(const std::string& content) { return "<td>" + content + "</td>"; }

std::string time_cell(const Summary& time, const std::optional<Ratio>& ratio) {
  return cell(short_number(time.median) + "<small>" + short_number(time.min) + " &#8211; " +
              short_number(time.p95) + "</small>" +
              (ratio ? "<small>" + ratio_text(*ratio) + "</small>" : ""));
}

std::string standing_text(Standing standing) {
  switch (standing) {
    case Standing::reference:
      return "reference";
    case Standing::again:
      return "reference again";
    case Standing::faster:
      return "faster";
    case Standing::same:
      return "not told apart";
    case Standing::slower:
      return "slower";
    case Standing::unknown:
      return "not known";
  }
  return "";
}

std::string engine_cell(const std::string& name, const std::string& title) {
  return "<th scope=\"row\">" + html(name) + "<small>" + html(title) + "</small></th>";
}

std::string row(const FileResults& file, const Finding& finding) {
  const Series& series = *finding.series;
  const auto of = [&](auto member) { return summarize(values(series, Field{{}, member})).median; };
  std::string out = finding.standing == Standing::reference ? "<tr class=\"reference\">" : "<tr>";
  out += engine_cell(series.engine, finding.title);
  out += time_cell(finding.open, finding.open_ratio) +
         time_cell(finding.first_byte, finding.first_byte_ratio) +
         time_cell(finding.first_tensor, finding.first_tensor_ratio) +
         time_cell(finding.all, finding.all_ratio);
  out += cell(standing_text(finding.standing)) +
         cell(gigabytes_per_second(file.tensor_bytes, finding.all.median));
  out += cell(short_bytes(of(&Sample::disk_bytes)));
  for (const auto faults : {&Sample::minor_faults, &Sample::major_faults})
    out += cell(short_count(of(faults)));
  out += cell(series.system_calls ? std::to_string(*series.system_calls) : "-");
  for (const auto bytes : {&Sample::anonymous_bytes, &Sample::file_bytes, &Sample::cached_before,
                           &Sample::cached_after})
    out += cell(short_bytes(of(bytes)));
  out += cell(percent(of(&Sample::huge_part_after)));
  return out + cell(std::to_string(series.discarded)) + "</tr>\n";
}

constexpr std::array titles = {"engine",
                               "open, ms",
                               "first byte, ms",
                               "first tensor, ms",
                               "all bytes, ms",
                               "all bytes, against the reference",
                               "GB/s",
                               "read from disk",
                               "minor faults",
                               "major faults",
                               "system calls",
                               "RssAnon",
                               "RssFile",
                               "cached before",
                               "cached after",
                               "of it in 2 MiB",
                               "discarded samples"};

std::string table(const FileResults& file, const Section& section) {
  std::string out = "<div class=\"wide\"><table>\n<thead><tr>";
  for (const char* title : titles) out += "<th scope=\"col\">" + std::string(title) + "</th>";
  out += "</tr></thead>\n<tbody>\n";
  for (const Finding& finding : section.findings) out += row(file, finding);
  const std::string rest =
      "<td class=\"why\" colspan=\"" + std::to_string(titles.size() - 1) + "\">not measured: ";
  for (const NotMeasured& engine : section.not_measured)
    out +=
        "<tr>" + engine_cell(engine.name, engine.title) + rest + html(engine.why) + "</td></tr>\n";
  return out + "</tbody></table></div>\n";
}

// Parts of the page.

std::string section_html(const Results& results, const FileResults& file, const Section& section) {
  const std::string of_file = results.files.size() > 1 ? ": " + html(file.path) : "";
  std::string out = element("h2", escaped(name_of(section)) + of_file) +
                    paragraph("Before each sample: " + describe(section.scenario) + ".");
  out += aa_paragraph(results, section);
  if (!section.findings.empty()) {
    out += element("h3", "Until all bytes of all tensors were read") +
           chart(section, "until all bytes were read", &Sample::all_ms);
    out += element("h3", "Until the first tensor was read") +
           chart(section, "until the first tensor was read", &Sample::first_tensor_ms);
  }
  return out + element("h3", "All figures") + table(file, section);
}

std::string file_facts(const FileResults& file) {
  const std::string left_out = std::to_string(file.tensors_left_out) + " left out";
  return element("p", human_bytes(file.file_bytes) + "; every sample reads " +
                          count(file.tensors, "tensor") + ", " + human_bytes(file.tensor_bytes) +
                          (file.tensors_left_out > 0 ? " (" + left_out + ")" : "") + ", first " +
                          html(file.named_tensor) + ", " + human_bytes(file.named_tensor_bytes) +
                          ".");
}

std::string file_html(const Results& results, const FileResults& file) {
  const std::vector<Section> all = sections(results, file);
  std::string out = element("h2", html(file.path)) + file_facts(file) + aa_summary(all) +
                    verdicts(results, file, all);
  for (const Section& section : all) out += section_html(results, file, section);
  return out;
}

std::string warnings_html(const Results& results) {
  std::string out;
  for (const std::string& warning : warnings(results)) out += element("li", html(warning));
  return out.empty() ? out
                     : "<div class=\"alarm\"><strong>Before you believe the figures</strong>\n" +
                           element("ul", out) + "</div>\n";
}

std::string method(const Results& results) {
  const std::string reference = html(results.reference);
  std::string out = element("h2", "How it was measured");
  out += paragraph(
      "Every sample is a fresh process. The clock starts when the engine begins to open the file: "
      "starting the process and importing libraries do not count. The file is brought into the "
      "same state before every sample, and that is checked; a sample whose state was not right is "
      "thrown away and repeated, which the last column counts. A round measures every engine "
      "once, so that what slows the machine for a while hits all of them; there were " +
      count(results.rounds, "round") + ".");
  out += paragraph(
      results.recycled_memory
          ? "Memory was touched and freed before each sample. On virtual machines memory that was "
            "never touched is slow the first time, which would punish engines that copy."
          : "Memory was not touched before the samples. On virtual machines memory that was never "
            "touched is slow the first time, which punishes engines that copy.");
  out += paragraph(
      "Mapping a file moves no byte: a mapping engine has opened the file long before it could use "
      "it. So opening times say little; compare first bytes, first tensors and all bytes, each of "
      "which the process really read. \"Cold\" is cold for this system; a host below it or the "
      "disk may still have cached the file.");
  out += "<dl>\n";
  for (Scenario scenario : {Scenario::cold, Scenario::warm, Scenario::poisoned})
    out += term(std::string(to_string(scenario)), describe(scenario));
  out += term("file order, random order",
              "in which tensors are read; the shuffle is the same for all, and the named tensor is "
              "the first in both");
  out += term("times",
              "milliseconds: the median over the rounds, then the smallest &#8211; the 95th "
              "percentile (nearest rank), then how many times as long as " +
                  reference);
  out += term("ratios",
              "The median of the rounds&#39; own ratios. In brackets the interval of the sign "
              "test, at least 95 % sure from 6 rounds on whatever the distribution. If it holds 1, "
              "the two were not told apart. Of 20 such comparisons one may be wrong by chance.");
  out += term("A/A check", reference +
                               " is measured twice as if it were two engines. If the two differ, "
                               "something other than the engines does, and ratios as near to 1 as "
                               "theirs mean nothing.");
  out += term("GB/s", "10<sup>9</sup> tensor bytes a second until all bytes were read");
  out += term("read from disk", "by the process, from the device and not from the page cache");
  out += term("minor, major faults", "page faults without and with waiting for the disk");
  out += term("system calls", "from opening to all bytes, in a run of its own that is not timed");
  out += term("RssAnon, RssFile",
              "growth of the process at the end: memory of its own, and of files mapped. The "
              "latter is shared with all that map the same file.");
  out += term("cached before, after",
              "bytes of the engine&#39;s file in the page cache; of a sample of what was left "
              "there, the part in pieces of 2 MiB, which later processes map fastest");
  return out + "</dl>\n";
}

std::string machine_html(const Results& results) {
  const Machine& machine = results.machine;
  std::string out = element("h2", "Machine") + "<dl>\n";
  out += term("processor", html(machine.processor) + ", " + count(machine.cores, "core"));
  out += term("memory", human_bytes(machine.memory_bytes));
  out += term("kernel", html(machine.kernel));
  out += term("file system", html(machine.file_system) + " on " + html(machine.device));
  out += term("read-ahead while the samples ran",
              machine.read_ahead_bytes ? human_bytes(*machine.read_ahead_bytes) : "not known");
  out += term("transparent huge pages", html(machine.huge_pages));
  out += term("weightmap", html(results.version));
  return out + "</dl>\n";
}

std::string page_title(const Results& results) {
  if (results.files.size() != 1) return "Cold starts of " + count(results.files.size(), "file");
  const std::string& path = results.files.front().path;
  return "Cold starts of " + printable(path.substr(path.rfind('/') + 1));
}

}  // namespace

std::string html_report(const Results& results) {
  const std::string title = escaped(page_title(results));
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  out += element("title", title) + element("style", std::string(style_sheet)) + "</head>\n<body>\n";
  out += element("h1", title) +
         element("p class=\"soft\"",
                 html(results.machine.date) + ", weightmap bench " + html(results.version));
  out += warnings_html(results);
  for (const FileResults& file : results.files) out += file_html(results, file);
  return out + method(results) + machine_html(results) + "</body>\n</html>\n";
}

}  // namespace weightmap::cli::bench
