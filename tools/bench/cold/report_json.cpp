#include "tools/bench/cold/report_json.hpp"

#include "tools/bench/cold/fields.hpp"
#include "tools/bench/cold/findings.hpp"
#include "tools/bench/cold/statistics.hpp"

namespace weightmap::cli::bench {
namespace {

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
