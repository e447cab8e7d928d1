#include "tools/bench/cold/report_text.hpp"

#include <algorithm>

#include "tools/bench/cold/fields.hpp"
#include "tools/bench/cold/findings.hpp"
#include "tools/bench/cold/numbers.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

std::string labelled(const std::string& label, const std::string& text) {
  constexpr std::size_t label_width = 11;
  return label + std::string(label_width - std::min(label_width - 1, label.size()), ' ') + text +
         "\n";
}

std::string engines_text(const Results& results) {
  std::string out;
  for (const Engine& engine : results.engines) {
    const bool first = &engine == &results.engines.front();
    out += labelled(first ? "engines" : "",
                    printable(engine.name) + ": " + printable(title_of(results, engine.name)));
  }
  return out;
}

std::string header(const Results& results) {
  std::string out = "weightmap bench " + results.version + ", " + results.machine.date + "\n";
  out += labelled("machine", machine_text(results.machine));
  out += labelled("settings", settings_text(results));
  out += engines_text(results);
  for (const std::string& warning : warnings(results))
    out += labelled("WARNING", printable(warning));
  return out;
}

double median(const Finding& finding, const Field& field) {
  return summarize(values(*finding.series, field)).median;
}

std::string all_text(const Summary& all) {
  return short_number(all.median) + " (" + short_number(all.min) + ", " + short_number(all.p95) +
         ")";
}

std::string ratio_cell(const Finding& finding) {
  if (finding.standing == Standing::reference) return "reference";
  if (!finding.all_ratio) return "-";
  return (finding.standing == Standing::same ? "~" : "") + ratio_text(*finding.all_ratio);
}

std::string disk_text(double disk_bytes, std::uint64_t tensor_bytes) {
  if (tensor_bytes == 0) return "-";
  return percent(disk_bytes / static_cast<double>(tensor_bytes));
}

std::string cached_text(double bytes, double huge_part) {
  return short_bytes(bytes) + " " + percent(huge_part);
}

std::string table(const Section& section, const FileResults& file) {
  std::vector<std::vector<std::string>> rows;
  for (const Finding& finding : section.findings) rows.push_back(report_row(finding, file));
  return to_columns(report_columns(), rows);
}

std::string section_text(const Results& results, const FileResults& file, const Section& section) {
  std::string out =
      "\n" + name_of(section) + "; before each sample: " + describe(section.scenario) + "\n";
  if (section.aa) out += aa_text(results, *section.aa) + "\n";
  if (!section.findings.empty()) out += headline(section, file) + "\n" + table(section, file);
  for (const NotMeasured& engine : section.not_measured)
    out += "not measured: " + printable(engine.name) + ": " + printable(engine.why) + "\n";
  return out;
}

std::string file_report(const Results& results, const FileResults& file) {
  std::string out = "\n" + labelled("file", file_text(file));
  for (const Section& section : sections(results, file))
    out += section_text(results, file, section);
  return out;
}

}  // namespace

std::vector<Column> report_columns() {
  return {{"ENGINE"},
          {"OPEN ms", Column::right},
          {"BYTE ms", Column::right},
          {"TENSOR ms", Column::right},
          {"ALL ms (MIN, P95)", Column::right},
          {"GB/s", Column::right},
          {"RATIO [95 %]", Column::right},
          {"DISK", Column::right},
          {"MIN/MAJ", Column::right},
          {"ANON", Column::right},
          {"CACHED, HUGE", Column::right}};
}

std::vector<std::string> report_row(const Finding& finding, const FileResults& file) {
  const auto of = [&](auto member) { return median(finding, {{}, member}); };
  return {printable(finding.series->engine),
          short_number(finding.open.median),
          short_number(finding.first_byte.median),
          short_number(finding.first_tensor.median),
          all_text(finding.all),
          gigabytes_per_second(file.tensor_bytes, finding.all.median),
          ratio_cell(finding),
          disk_text(of(&Sample::disk_bytes), file.tensor_bytes),
          short_count(of(&Sample::minor_faults)) + "/" + short_count(of(&Sample::major_faults)),
          short_bytes(of(&Sample::anonymous_bytes)),
          cached_text(of(&Sample::cached_after), of(&Sample::huge_part_after))};
}

std::string machine_text(const Machine& machine) {
  std::string text = printable(machine.processor) + ", " + count(machine.cores, "core") + ", " +
                     human_bytes(machine.memory_bytes) + "; " + printable(machine.kernel);
  if (machine.file_system.empty()) return text;  // of a checkpoint alone
  return text + "; " + printable(machine.file_system) + " on " + printable(machine.device) +
         ", read-ahead " +
         (machine.read_ahead_bytes ? human_bytes(*machine.read_ahead_bytes) : "not known") +
         "; huge pages " + printable(machine.huge_pages);
}

std::string settings_text(const Results& results) {
  return count(results.rounds, "round") + ", every sample a fresh process; memory " +
         (results.recycled_memory ? "touched and freed before each" : "as the system gives it");
}

std::string file_text(const FileResults& file) {
  return printable(file.path) + ", " + human_bytes(file.file_bytes) + "; " +
         count(file.tensors, "tensor") + ", " + human_bytes(file.tensor_bytes) +
         (file.tensors_left_out > 0 ? " (" + std::to_string(file.tensors_left_out) + " left out)"
                                    : "") +
         "; first tensor " + printable(file.named_tensor) + ", " +
         human_bytes(file.named_tensor_bytes);
}

std::string report_legend(const Results& results) {
  const std::string reference = printable(results.reference);
  return "Times are milliseconds since the engine began to open the file, medians over the "
         "rounds; less is better.\n"
         "  OPEN      until tensors can be asked for; mapping moves no byte\n"
         "  BYTE      until one byte of the first tensor was read; TENSOR: until all of it was\n"
         "  ALL       until all bytes of all tensors were; MIN: the quickest round, P95: of 20 "
         "rounds the second slowest\n"
         "  GB/s      tensor bytes / ALL, 10^9 bytes a second\n"
         "  RATIO     ALL / ALL of " +
         reference +
         ", median over the rounds, and its interval of at least 95 % confidence from 6 rounds "
         "on;\n"
         "            above 1 is slower; ~ in front: not told apart from " +
         reference +
         "\n"
         "  DISK      bytes read from the disk / tensor bytes\n"
         "  MIN/MAJ   page faults without and with waiting for the disk\n"
         "  ANON      memory of its own at the end (RssAnon, growth)\n"
         "  CACHED    of its file left in the page cache, and the part of that in pieces of 2 "
         "MiB\n";
}

std::string text_report(const Results& results) {
  std::string out = header(results);
  for (const FileResults& file : results.files) out += file_report(results, file);
  return out + "\n" + report_legend(results);
}

}  // namespace weightmap::cli::bench
