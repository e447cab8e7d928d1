// Plays the choices of routers through each EvictionPolicy, and prints which share of them was
// resident, as a Markdown table.
//
//   policies [TRACE...] [--chosen 4] [--tokens 3000]
//
// TRACE is of bench/record_routes.py; a model of a router (expert_trace.hpp) is played before them.
// All layers share the room, as in a ResidentSet, where all units have one size; the first third of
// the tokens is not counted. In brackets: misses, as a multiple of those of LRU.
#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/expert_trace.hpp"
#include "bench/played_policy.hpp"
#include "weightmap/on_demand.hpp"

namespace {

constexpr std::array<std::string_view, 4> policies = {"lru", "lfu", "sieve", "s3fifo"};

struct Counts {
  double choices = 0, misses = 0;
};

Counts play(const ExpertTrace& trace, std::string_view policy, std::size_t room) {
  PlayedPolicy playing(weightmap::eviction_policy(policy), trace.layers * trace.experts, room);
  Counts counts;
  for (std::size_t token = 0; token < trace.tokens(); ++token)
    for (std::size_t layer = 0; layer < trace.layers; ++layer) {
      const std::vector<std::size_t> units = trace.units(token, layer);
      const std::size_t missing = playing.acquire(units).missing.size();
      if (token < trace.tokens() / 3) continue;
      counts.choices += static_cast<double>(units.size());
      counts.misses += static_cast<double>(missing);
    }
  return counts;
}

void print_rows(const std::string& name, const ExpertTrace& trace) {
  for (const std::size_t percent : {20, 30, 50}) {
    std::printf("| %s | %zu %% |", name.c_str(), percent);
    const std::size_t room = trace.layers * trace.experts * percent / 100;
    double of_lru = 0;
    for (const std::string_view policy : policies) {
      const Counts counts = play(trace, policy, room);
      if (policy == "lru") of_lru = counts.misses;
      std::printf(" %.1f %% (%.3f) |", 100 - 100 * counts.misses / counts.choices,
                  of_lru != 0 ? counts.misses / of_lru : 1);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> recorded;
  std::size_t chosen = 4, tokens = 3000;
  CLI::App app("Plays the choices of routers through each policy.");
  app.add_option("TRACE", recorded, "Of bench/record_routes.py");
  app.add_option("--chosen", chosen, "Of 64 experts of a layer, in the model")
      ->check(CLI::Range(1, 8));
  app.add_option("--tokens", tokens, "Of the model")->check(CLI::Range(3, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  std::printf("| trace | room | LRU | LFU | SIEVE | S3-FIFO |\n|---|---|---|---|---|---|\n");
  print_rows("model", modelled_trace(8, 64, chosen, tokens, 42));
  for (const std::string& path : recorded)
    print_rows(path.substr(path.rfind('/') + 1), recorded_trace(path));
  return 0;
}
