// The findings of the samples, before they become text or JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench/cold/results.hpp"
#include "tools/bench/cold/statistics.hpp"

namespace weightmap::cli::bench {

// The reference measured twice, as if it were two engines. A difference between the two is noise,
// which affects other engines, too.
struct AACheck {
  Scenario scenario = Scenario::cold;
  Order order = Order::file;
  Ratio all{};          // of all_ms
  bool passed = false;  // the interval contains 1
  // The distance of the two: 0.08 if one took 1.08 times as long as the other.
  double deviation() const noexcept;
};

enum class Standing { reference, again, faster, same, slower, unknown };

// One measured engine.
struct Finding {
  const Series* series;  // points into the FileResults
  std::string title;
  Summary open, first_byte, first_tensor, all;  // ms
  // Relative to the reference; unset for the reference itself or without values.
  std::optional<Ratio> all_ratio;
  // By all_ratio. `same`: its interval contains 1, or the failed A/A check deviates more.
  Standing standing = Standing::unknown;
};

struct NotMeasured {
  std::string name, why;
};

// One scenario and order of a file.
struct Section {
  Scenario scenario = Scenario::cold;
  Order order = Order::file;
  std::vector<Finding> findings;  // the fastest to all bytes first
  std::vector<NotMeasured> not_measured;
  std::optional<AACheck> aa;  // unset unless both were measured at least twice
};

// Returns the sections in the order of the enumerations; only those for which `file` has a series.
std::vector<Section> sections(const Results& results, const FileResults& file);

// Returns nothing if `series` is the reference, or there is nothing to compare.
std::optional<Ratio> against_reference(const Results& results, const FileResults& file,
                                       const Series& series, double Sample::*time);

// Returns the runner's warnings, then those from the samples. Paths in them are not escaped.
std::vector<std::string> warnings(const Results& results);

// Returns the engine's title, or its name if there is none.
std::string title_of(const Results& results, const std::string& engine);

// Returns "Fastest: a, 0.59 s for all bytes (3.52 GB/s)."; empty if nothing was measured.
std::string headline(const Section& section, const FileResults& file);

// Returns "cold, file order".
std::string name_of(const Section& section);
// Returns "A/A check failed, cold, file order: ..." or "A/A check passed, ...".
std::string aa_text(const Results& results, const AACheck& check);
// Describes the state of the file.
std::string describe(Scenario scenario);

}  // namespace weightmap::cli::bench
