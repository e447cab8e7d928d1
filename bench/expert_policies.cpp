// Plays choices of a router through the policies of ResidentSet, and prints how many were found.
//
//   expert_policies [TRACE...] [--budgets 20,30,50] [--tokens 400]
//
// TRACE is a file of bench/record_routes.py; without one, the models of distances are played. Each
// layer of a token is one call of acquire(), whose units cannot go. The first third of the tokens
// is not counted. Prints a Markdown table: the share of the choices that were resident, and in
// brackets the misses relative to those of "lru"; "best" is what nobody can do who does not know
// the future (the unit goes that is needed latest).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bench/expert_trace.hpp"
#include "bench/played_policy.hpp"

namespace {

struct Named {
  std::string name;
  ExpertTrace trace;
};

using Calls = std::vector<std::vector<std::size_t>>;

Calls calls_of(const ExpertTrace& trace) {
  Calls calls;
  for (std::size_t token = 0; token < trace.tokens(); ++token)
    for (std::size_t layer = 0; layer < trace.layers; ++layer)
      calls.push_back(trace.units(token, layer));
  return calls;
}

// Knows when each unit is needed next.
class Oracle final : public weightmap::EvictionPolicy {
 public:
  // `own` of a history is the time of its next use.
  explicit Oracle(const Calls& calls, std::size_t units) : next_(calls.size()) {
    std::vector<std::uint64_t> later(units, std::numeric_limits<std::uint64_t>::max());
    for (std::size_t call = calls.size(); call-- > 0;)
      for (const std::size_t unit : calls[call])
        next_[call].push_back(std::exchange(later[unit], call + 1));
  }
  std::string_view name() const noexcept override { return "best"; }
  void hit(weightmap::UnitHistory& unit, std::uint64_t now) const noexcept override {
    if (now != now_) now_ = now, place_ = 0;
    unit.own = next_[now - 1][place_++];
  }
  void entered(weightmap::UnitHistory& unit, std::uint64_t now) const noexcept override {
    hit(unit, now);
  }
  std::size_t choose(std::span<weightmap::UnitHistory* const> units,
                     std::uint64_t) const noexcept override {
    const auto latest = std::ranges::max_element(units, {}, &weightmap::UnitHistory::own);
    return static_cast<std::size_t>(latest - units.begin());
  }

 private:
  std::vector<std::vector<std::uint64_t>> next_;  // by call, of its units in their order
  mutable std::uint64_t now_ = 0;
  mutable std::size_t place_ = 0;
};

struct Count {
  std::size_t calls = 0, misses = 0;  // units
};

Count play(const std::shared_ptr<const weightmap::EvictionPolicy>& policy, const Calls& calls,
           std::size_t units, std::size_t room) {
  PlayedPolicy playing(policy, units, room);
  Count count;
  for (std::size_t call = 0; call < calls.size(); ++call) {
    const PlayedPolicy::Call done = playing.acquire(calls[call]);
    if (call < calls.size() / 3) continue;
    count.calls += calls[call].size();
    count.misses += done.missing.size();
  }
  return count;
}

void print_row(const Named& named, unsigned percent) {
  const Calls calls = calls_of(named.trace);
  const std::size_t units = named.trace.layers * named.trace.experts;
  const std::size_t room = std::max(units * percent / 100, calls[0].size());
  std::printf("| %s, %u %% |", named.name.c_str(), percent);
  double of_lru = 0;
  for (const std::string name : {"lru", "lfu", "sieve", "s3fifo", "best"}) {
    const auto policy =
        name == "best" ? std::make_shared<Oracle>(calls, units) : weightmap::eviction_policy(name);
    const Count count = play(policy, calls, units, room);
    const double misses = static_cast<double>(count.misses) / static_cast<double>(count.calls);
    if (name == "lru") of_lru = misses;
    std::printf(" %.1f %%", (1 - misses) * 100);
    if (name != "lru" && of_lru > 0) std::printf(" (%.2f)", misses / of_lru);
    std::printf(" |");
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> paths;
  std::vector<unsigned> budgets{20, 30, 50};
  std::size_t tokens = 400;
  CLI::App app("Plays choices of a router through the policies of ResidentSet.");
  app.add_option("TRACE", paths);
  app.add_option("--budgets", budgets, "Percent of all experts")->delimiter(',');
  app.add_option("--tokens", tokens, "Of a model, and of a file at most");
  CLI11_PARSE(app, argc, argv);
  std::vector<Named> traces;
  for (const std::string& path : paths) {
    traces.push_back({path.substr(path.rfind('/') + 1), recorded_trace(path)});
    ExpertTrace& trace = traces.back().trace;
    trace.choices.resize(std::min(trace.tokens(), tokens) * trace.layers);
  }
  if (paths.empty()) {
    traces.push_back({"8 layers of 64, 4 chosen", modelled_trace(8, 64, 4, tokens, 42)});
    traces.push_back({"16 layers of 128, 8 chosen", modelled_trace(16, 128, 8, tokens, 42)});
  }
  std::printf("| | lru | lfu | sieve | s3fifo | best |\n|---|---|---|---|---|---|\n");
  for (const Named& named : traces)
    for (const unsigned percent : budgets) print_row(named, percent);
  return 0;
}
