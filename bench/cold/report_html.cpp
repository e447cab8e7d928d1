#include "bench/cold/report_html.hpp"

#include "bench/cold/findings.hpp"
#include "bench/cold/report_text.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

constexpr std::string_view style_sheet = R"(
:root { color-scheme: light dark; --page: #fff; --text: #1b1f24; --soft: #59636e; --line: #d5dae0;
  --reference: #c24e00; --alarm: #fdecd9; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --text: #e3e8ee; --soft: #9ca7b3;
  --line: #363e48; --reference: #f0a030; --alarm: #47300f; } }
body { margin: 0 auto; padding: 1.5rem 1rem; max-width: 76rem; background: var(--page);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { border-top: 2px solid var(--line); padding-top: 1rem; }
h1, h2, td, li, p { overflow-wrap: anywhere; }
p, ul, .alarm { max-width: 50rem; }
.soft, small { color: var(--soft); }
.alarm { background: var(--alarm); border-left: 4px solid var(--reference); padding: .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .55rem; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--line); }
td { white-space: nowrap; } td.why { white-space: normal; }
tbody th, td.why { text-align: left; min-width: 9rem; }
small { display: block; font-weight: 400; }
tr.reference th { color: var(--reference); }
pre { overflow-x: auto; }
@media print { @page { size: landscape; margin: 12mm; } table { font-size: 6.5pt; } }
)";

// Returns `text` with &, <, >, " and ' as character references.
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

// Makes untrusted text safe: no control characters, no marks that change the direction, no markup.
std::string html(const std::string& text) { return escaped(printable(text)); }

std::string element(const std::string& name, const std::string& content) {
  return "<" + name + ">" + content + "</" + name.substr(0, name.find(' ')) + ">\n";
}

std::string paragraph(const std::string& text) { return element("p", escaped(text)); }

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

std::string engine_cell(const std::string& name, const std::string& title) {
  return "<th scope=\"row\">" + html(name) + "<small>" + html(title) + "</small></th>";
}

std::string row(const FileResults& file, const Finding& finding) {
  const std::vector<std::string> cells = report_row(finding, file);
  std::string out = finding.standing == Standing::reference ? "<tr class=\"reference\">" : "<tr>";
  out += engine_cell(finding.series->engine, finding.title);
  for (std::size_t i = 1; i < cells.size(); ++i) out += "<td>" + escaped(cells[i]) + "</td>";
  return out + "</tr>\n";
}

std::string table(const FileResults& file, const Section& section) {
  const std::vector<Column> columns = report_columns();
  std::string out = "<div class=\"wide\"><table>\n<thead><tr>";
  for (const Column& column : columns)
    out += "<th scope=\"col\">" + escaped(column.title) + "</th>";
  out += "</tr></thead>\n<tbody>\n";
  for (const Finding& finding : section.findings) out += row(file, finding);
  const std::string rest =
      "<td class=\"why\" colspan=\"" + std::to_string(columns.size() - 1) + "\">not measured: ";
  for (const NotMeasured& engine : section.not_measured)
    out +=
        "<tr>" + engine_cell(engine.name, engine.title) + rest + html(engine.why) + "</td></tr>\n";
  return out + "</tbody></table></div>\n";
}

std::string section_html(const Results& results, const FileResults& file, const Section& section) {
  const std::string of_file = results.files.size() > 1 ? ": " + html(file.path) : "";
  return element("h2", escaped(name_of(section)) + of_file) +
         paragraph("Before each sample: " + describe(section.scenario) + ".") +
         aa_paragraph(results, section) + table(file, section);
}

std::string file_html(const Results& results, const FileResults& file) {
  const std::vector<Section> all = sections(results, file);
  std::string out = element("h2", html(file.path)) + paragraph(file_text(file)) + aa_summary(all) +
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
  out += element("h2", "How it was measured") + paragraph(machine_text(results.machine) + ".") +
         paragraph(settings_text(results) +
                   ". The state of the file is checked before each sample; one whose state was not "
                   "right is thrown away and repeated. A round measures every engine once.") +
         element("pre", escaped(report_legend(results)));
  return out + "</body>\n</html>\n";
}

}  // namespace weightmap::cli::bench
