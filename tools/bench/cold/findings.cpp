#include "tools/bench/cold/findings.hpp"

#include <algorithm>

#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

const Series* find(const FileResults& file, const std::string& engine, Scenario scenario,
                   Order order) {
  for (const Series& series : file.series)
    if (series.engine == engine && series.scenario == scenario && series.order == order)
      return &series;
  return nullptr;
}

std::optional<AACheck> aa_check(const Results& results, const FileResults& file, Scenario scenario,
                                Order order) {
  const Series* again = find(file, results.again, scenario, order);
  if (!again || again->samples.size() < 2) return std::nullopt;
  const auto ratio = against_reference(results, file, *again, &Sample::all_ms);
  if (!ratio || ratio->confidence == 0) return std::nullopt;
  return AACheck{scenario, order, *ratio, !ratio->differs()};
}

// 0.5 and 2 have the same distance.
double away_from_1(const Ratio& ratio) { return std::max(ratio.value, 1 / ratio.value) - 1; }

Standing standing(const Results& results, const Finding& finding,
                  const std::optional<AACheck>& aa) {
  if (finding.series->engine == results.reference) return Standing::reference;
  if (finding.series->engine == results.again) return Standing::again;
  const std::optional<Ratio>& ratio = finding.all_ratio;
  if (!ratio || ratio->confidence == 0) return Standing::unknown;
  const bool within_aa = aa && !aa->passed && away_from_1(*ratio) <= aa->deviation();
  if (!ratio->differs() || within_aa) return Standing::same;
  return ratio->value < 1 ? Standing::faster : Standing::slower;
}

Finding find_out(const Results& results, const FileResults& file, const Series& series,
                 const std::optional<AACheck>& aa) {
  const auto summary = [&](double Sample::*time) { return summarize(values(series, time)); };
  Finding finding{&series,
                  title_of(results, series.engine),
                  summary(&Sample::open_ms),
                  summary(&Sample::first_byte_ms),
                  summary(&Sample::first_tensor_ms),
                  summary(&Sample::all_ms),
                  against_reference(results, file, series, &Sample::all_ms),
                  Standing::unknown};
  finding.standing = standing(results, finding, aa);
  return finding;
}

std::string why_not(const Engine& engine, const Series* series) {
  if (series && !series->why_not.empty()) return series->why_not;
  return engine.why_not.empty() ? "no samples" : engine.why_not;
}

Section section(const Results& results, const FileResults& file, Scenario scenario, Order order) {
  Section out{scenario, order, {}, {}, aa_check(results, file, scenario, order)};
  for (const Series& series : file.series)
    if (series.scenario == scenario && series.order == order && !series.samples.empty())
      out.findings.push_back(find_out(results, file, series, out.aa));
  std::stable_sort(out.findings.begin(), out.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.all.median < b.all.median; });
  for (const Engine& engine : results.engines) {
    const Series* series = find(file, engine.name, scenario, order);
    if (!series || series->samples.empty())
      out.not_measured.push_back({engine.name, why_not(engine, series)});
  }
  return out;
}

bool read_the_same(const FileResults& file) {
  std::optional<std::uint64_t> first;
  for (const Series& series : file.series)
    for (const Sample& sample : series.samples) {
      if (!first) first = sample.checksum;
      if (sample.checksum != *first) return false;
    }
  return true;
}

bool has_samples(const FileResults& file) {
  return std::any_of(file.series.begin(), file.series.end(),
                     [](const Series& series) { return !series.samples.empty(); });
}

unsigned discarded(const FileResults& file) {
  unsigned out = 0;
  for (const Series& series : file.series) out += series.discarded;
  return out;
}

// Ignores the reference's second measurement.
const Finding* fastest_of(const Section& section) {
  for (const Finding& finding : section.findings)
    if (finding.standing != Standing::again) return &finding;
  return nullptr;
}

std::string name_and_title(const Finding& finding) {
  const std::string& name = finding.series->engine;
  return printable(name) + (finding.title == name ? "" : " (" + printable(finding.title) + ")");
}

}  // namespace

double AACheck::deviation() const noexcept { return away_from_1(all); }

std::vector<Section> sections(const Results& results, const FileResults& file) {
  std::vector<Section> out;
  for (Scenario scenario : {Scenario::cold, Scenario::warm, Scenario::poisoned})
    for (Order order : {Order::file, Order::random})
      if (std::any_of(file.series.begin(), file.series.end(), [&](const Series& series) {
            return series.scenario == scenario && series.order == order;
          }))
        out.push_back(section(results, file, scenario, order));
  return out;
}

std::optional<Ratio> against_reference(const Results& results, const FileResults& file,
                                       const Series& series, double Sample::*time) {
  const Series* reference = find(file, results.reference, series.scenario, series.order);
  if (!reference || series.engine == results.reference) return std::nullopt;
  return compare(values(series, time), values(*reference, time));
}

std::vector<std::string> warnings(const Results& results) {
  std::vector<std::string> out = results.warnings;
  if (results.rounds < 6)
    out.push_back("only " + count(results.rounds, "round") +
                  ": an interval of 95 % confidence takes 6");
  for (const FileResults& file : results.files) {
    const std::string& path = file.path;
    if (!has_samples(file)) out.push_back(path + ": nothing was measured");
    if (!read_the_same(file))
      out.push_back(path + ": not all samples read the same bytes (their checksums differ)");
    if (const unsigned samples = discarded(file))
      out.push_back(path + ": " + count(samples, "sample") + " discarded by a guard and repeated");
    for (const Section& section : sections(results, file))
      if (!section.aa && !section.findings.empty())
        out.push_back(path + ", " + name_of(section) +
                      ": no A/A check, so nothing says how much chance alone does");
  }
  return out;
}

std::string title_of(const Results& results, const std::string& engine) {
  for (const Engine& known : results.engines)
    if (known.name == engine && !known.title.empty()) return known.title;
  return engine;
}

std::string headline(const Section& section, const FileResults& file) {
  const Finding* fastest = fastest_of(section);
  if (!fastest) return "";
  std::string out = "Fastest: " + name_and_title(*fastest) + ", " + duration(fastest->all.median) +
                    " for all bytes (" +
                    gigabytes_per_second(file.tensor_bytes, fastest->all.median) + " GB/s)";
  if (fastest->standing == Standing::reference) out += "; it is the reference";
  if (fastest->standing == Standing::same) out += "; not told apart from the reference";
  return out + ".";
}

std::string name_of(const Section& section) {
  return std::string(to_string(section.scenario)) + ", " + std::string(to_string(section.order)) +
         " order";
}

std::string aa_text(const Results& results, const AACheck& check) {
  const std::string what = printable(results.reference) + " again took " + ratio_text(check.all) +
                           " as long as itself (" + percent(check.all.confidence) + " confidence)";
  if (check.passed) return "A/A check passed: " + what + ".";
  return "A/A CHECK FAILED: " + what + ". Ratios within " + percent(check.deviation()) +
         " of 1 mean nothing here.";
}

std::string describe(Scenario scenario) {
  if (scenario == Scenario::cold) return "none of the file in the page cache";
  return std::string("all of the file in the page cache, in pieces ") +
         (scenario == Scenario::warm ? "as large as the system makes them" : "of 4 KiB");
}

}  // namespace weightmap::cli::bench
