#include "tools/bench/cold/report.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>

#include "tools/bench/cold/findings.hpp"
#include "tools/bench/cold/statistics.hpp"
#include "tools/support/columns.hpp"
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

std::string settings_text(const Results& results) {
  return count(results.rounds, "round") + ", every sample a fresh process; memory " +
         (results.recycled_memory ? "touched and freed before each" : "as the system gives it");
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

std::vector<Column> columns() {
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

std::vector<std::string> row(const Finding& finding, const FileResults& file) {
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

std::string table(const Section& section, const FileResults& file) {
  std::vector<std::vector<std::string>> rows;
  for (const Finding& finding : section.findings) rows.push_back(row(finding, file));
  return to_columns(columns(), rows);
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

std::string file_text(const FileResults& file) {
  return printable(file.path) + ", " + human_bytes(file.file_bytes) + "; " +
         count(file.tensors, "tensor") + ", " + human_bytes(file.tensor_bytes) +
         (file.tensors_left_out > 0 ? " (" + std::to_string(file.tensors_left_out) + " left out)"
                                    : "") +
         "; first tensor " + printable(file.named_tensor) + ", " +
         human_bytes(file.named_tensor_bytes);
}

std::string file_report(const Results& results, const FileResults& file) {
  std::string out = "\n" + labelled("file", file_text(file));
  for (const Section& section : sections(results, file))
    out += section_text(results, file, section);
  return out;
}

// Explains the titles, in lines.
std::string legend(const Results& results) {
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

template <typename Number>
Json number(Number value) {
  return value;
}
template <typename Number>
Json number(std::optional<Number> value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json describe(const Machine& machine) {
  return {{"processor", machine.processor},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"kernel", machine.kernel},
          {"file_system", machine.file_system},
          {"device", machine.device},
          {"read_ahead_bytes", number(machine.read_ahead_bytes)},
          {"huge_pages", machine.huge_pages},
          {"date", machine.date}};
}

Json describe_settings(const Results& results) {
  return {{"rounds", results.rounds},
          {"reference", results.reference},
          {"again", results.again},
          {"recycled_memory", results.recycled_memory}};
}

Json describe(const Engine& engine) {
  return {
      {"name", engine.name}, {"title", engine.title}, {"why_not", text_or_null(engine.why_not)}};
}

// Readers of JSON round 64-bit numbers.
std::string checksum_text(const Sample& sample) {
  std::array<char, 19> out{};
  std::snprintf(out.data(), out.size(), "0x%016" PRIx64, sample.checksum);
  return out.data();
}

Json describe(const Sample& sample) {
  Json json = Json::object();
  for (const Field& field : fields)
    json[std::string(field.name)] =
        std::visit([&](auto member) { return number(sample.*member); }, field.member);
  json["checksum"] = checksum_text(sample);
  return json;
}

Json describe_summaries(const Series& series) {
  Json json = Json::object();
  for (const Field& field : fields) {
    std::vector<double> all = values(series, field);
    json[std::string(field.name)] =
        all.empty() ? Json(nullptr) : bench::describe(summarize(std::move(all)));
  }
  return json;
}

Json describe_ratios(const Results& results, const FileResults& file, const Series& series) {
  const auto ratio = [&](double Sample::*time) {
    return describe(against_reference(results, file, series, time));
  };
  return {{"open_ms", ratio(&Sample::open_ms)},
          {"first_byte_ms", ratio(&Sample::first_byte_ms)},
          {"first_tensor_ms", ratio(&Sample::first_tensor_ms)},
          {"all_ms", ratio(&Sample::all_ms)}};
}

Json describe(const Results& results, const FileResults& file, const Series& series) {
  Json samples = Json::array();
  for (const Sample& sample : series.samples) samples.push_back(describe(sample));
  return {{"engine", series.engine},
          {"scenario", to_string(series.scenario)},
          {"order", to_string(series.order)},
          {"why_not", text_or_null(series.why_not)},
          {"discarded", series.discarded},
          {"samples", samples},
          {"summaries", describe_summaries(series)},
          {"ratios", describe_ratios(results, file, series)}};
}

Json describe_aa_checks(const Results& results, const FileResults& file) {
  Json json = Json::array();
  for (const Section& section : sections(results, file))
    if (section.aa)
      json.push_back({{"scenario", to_string(section.scenario)},
                      {"order", to_string(section.order)},
                      {"all_ms", describe(section.aa->all)},
                      {"passed", section.aa->passed}});
  return json;
}

Json describe(const Results& results, const FileResults& file) {
  Json series = Json::array();
  for (const Series& one : file.series) series.push_back(describe(results, file, one));
  return {{"path", file.path},
          {"file_bytes", file.file_bytes},
          {"tensors", file.tensors},
          {"tensors_left_out", file.tensors_left_out},
          {"tensor_bytes", file.tensor_bytes},
          {"named_tensor", file.named_tensor},
          {"named_tensor_bytes", file.named_tensor_bytes},
          {"aa_checks", describe_aa_checks(results, file)},
          {"series", series}};
}

}  // namespace

std::string machine_text(const Machine& machine) {
  std::string text = printable(machine.processor) + ", " + count(machine.cores, "core") + ", " +
                     human_bytes(machine.memory_bytes) + "; " + printable(machine.kernel);
  if (machine.file_system.empty()) return text;  // of a checkpoint alone
  return text + "; " + printable(machine.file_system) + " on " + printable(machine.device) +
         ", read-ahead " +
         (machine.read_ahead_bytes ? human_bytes(*machine.read_ahead_bytes) : "not known") +
         "; huge pages " + printable(machine.huge_pages);
}

std::string text_report(const Results& results) {
  std::string out = header(results);
  for (const FileResults& file : results.files) out += file_report(results, file);
  return out + "\n" + legend(results);
}

Json json_report(const Results& results) {
  Json engines = Json::array();
  for (const Engine& engine : results.engines) engines.push_back(describe(engine));
  Json files = Json::array();
  for (const FileResults& file : results.files) files.push_back(describe(results, file));
  return {{"version", results.version},
          {"machine", describe(results.machine)},
          {"settings", describe_settings(results)},
          {"warnings", warnings(results)},
          {"engines", engines},
          {"files", files}};
}

}  // namespace weightmap::cli::bench
