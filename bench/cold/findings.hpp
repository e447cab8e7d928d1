// What the samples say, before it is written as text, JSON or HTML.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/cold/results.hpp"
#include "bench/cold/statistics.hpp"

namespace weightmap::cli::bench {

// The reference measured a second time as if it were another engine. Where the two differ, so do
// other engines for no reason of their own.
struct AACheck {
  Scenario scenario = Scenario::cold;
  Order order = Order::file;
  Ratio all{};          // of all_ms
  bool passed = false;  // the interval holds 1
  // How far apart the two are: 0.08 if one took 1.08 times as long as the other.
  double deviation() const noexcept;
};

enum class Standing { reference, again, faster, same, slower, unknown };

// One engine that was measured.
struct Finding {
  const Series* series;  // of the FileResults that were asked about
  std::string title;
  Summary open, first_byte, first_tensor, all;  // ms
  // Against the reference; nothing where this is the reference or there is nothing to compare.
  std::optional<Ratio> open_ratio, first_byte_ratio, first_tensor_ratio, all_ratio;
  // By all_ratio. `same`: its interval holds 1, or the A/A check failed and deviates further.
  Standing standing = Standing::unknown;
};

struct NotMeasured {
  std::string name, title, why;
};

// One scenario and order of a file.
struct Section {
  Scenario scenario = Scenario::cold;
  Order order = Order::file;
  std::vector<Finding> findings;  // the quickest to all bytes first
  std::vector<NotMeasured> not_measured;
  std::optional<AACheck> aa;  // nothing if both were not measured at least twice
};

// In the order of the enumerations; only those that `file` has a series of.
std::vector<Section> sections(const Results& results, const FileResults& file);

// Nothing where `series` is the reference, or there is nothing to compare.
std::optional<Ratio> against_reference(const Results& results, const FileResults& file,
                                       const Series& series, double Sample::*time);

// Those of the runner, then what the samples give away themselves. Paths in them are as they are.
std::vector<std::string> warnings(const Results& results);

// What the engine is called at length; its name if nothing is known of it.
std::string title_of(const Results& results, const std::string& engine);

// "Fastest: a, 0.59 s for all bytes (3.52 GB/s)."; empty if nothing was measured.
std::string headline(const Section& section, const FileResults& file);
// Sentences: what the reference took unless the headline says it, who was faster, not told apart
// from it, slower.
std::vector<std::string> comparison(const Section& section);

// "cold, file order".
std::string name_of(const Section& section);
// "A/A check failed, cold, file order: ..." or "A/A check passed, ...".
std::string aa_text(const Results& results, const AACheck& check);
// What state the file is in.
std::string describe(Scenario scenario);

}  // namespace weightmap::cli::bench
