#include "tools/bench/cold/report_html.hpp"

#include "tools/bench/cold/findings.hpp"
#include "tools/bench/cold/report_text.hpp"
#include "tools/support/html.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

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
  const std::string title = page_title(results);
  std::string out = element("h1", escaped(title)) +
                    element("p class=\"soft\"", html(results.machine.date) + ", weightmap bench " +
                                                    html(results.version));
  out += warnings_html(results);
  for (const FileResults& file : results.files) out += file_html(results, file);
  out += element("h2", "How it was measured") + paragraph(machine_text(results.machine) + ".") +
         paragraph(settings_text(results) +
                   ". The state of the file is checked before each sample; one whose state was not "
                   "right is thrown away and repeated. A round measures every engine once.") +
         element("pre", escaped(report_legend(results)));
  return html_page(title, out);
}

}  // namespace weightmap::cli::bench
