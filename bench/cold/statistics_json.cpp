#include "bench/cold/statistics_json.hpp"

namespace weightmap::cli::bench {

Json describe(const Summary& summary) {
  return {{"median", summary.median}, {"min", summary.min}, {"p95", summary.p95}};
}

Json describe(const std::optional<Ratio>& ratio) {
  if (!ratio) return nullptr;
  return {{"value", ratio->value},
          {"low", ratio->low},
          {"high", ratio->high},
          {"confidence", ratio->confidence}};
}

}  // namespace weightmap::cli::bench
