#include "bench/expert_trace.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <span>
#include <sstream>

namespace {

// The experts of one layer, those that were used last at the front.
class Recency {
 public:
  explicit Recency(std::size_t experts) : order_(experts) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  // Precondition: count <= experts.
  std::vector<std::size_t> choose(std::size_t count, std::mt19937_64& random) {
    std::vector<std::size_t> chosen;
    while (chosen.size() < count) {
      // Drawn once a choice, so that the shares stand although experts are not chosen twice.
      const std::vector<std::size_t> others = without(range(random), chosen);
      if (!others.empty()) chosen.push_back(others[random() % others.size()]);
    }
    for (const std::size_t expert : chosen) {
      const auto found = std::ranges::find(order_, expert);
      std::rotate(order_.begin(), found, found + 1);
    }
    return chosen;
  }

 private:
  std::span<const std::size_t> range(std::mt19937_64& random) const {
    const std::size_t eighth = std::max<std::size_t>(order_.size() / 8, 1);
    const std::size_t quarter = std::max<std::size_t>(order_.size() / 4, 2);
    const std::span all(order_);
    const std::uint64_t percent = random() % 100;
    if (percent < 67) return all.first(eighth);
    if (percent < 81) return all.subspan(eighth, quarter - eighth);
    return all.subspan(quarter);
  }
  static std::vector<std::size_t> without(std::span<const std::size_t> experts,
                                          const std::vector<std::size_t>& chosen) {
    std::vector<std::size_t> others;
    std::ranges::copy_if(experts, std::back_inserter(others), [&](std::size_t expert) {
      return std::ranges::find(chosen, expert) == chosen.end();
    });
    return others;
  }

  std::vector<std::size_t> order_;
};

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", path.c_str(), why.c_str());
  std::exit(1);
}

// "3,17,40": numbers below `experts`, each once; otherwise none.
std::vector<std::size_t> choice_of(const std::string& word, std::size_t experts) {
  std::vector<std::size_t> chosen;
  std::istringstream numbers(word);
  for (std::string number; std::getline(numbers, number, ',');) {
    char* end = nullptr;
    const std::size_t expert = std::strtoull(number.c_str(), &end, 10);
    const bool is_new = std::ranges::find(chosen, expert) == chosen.end();
    if (end == number.c_str() || *end != 0 || expert >= experts || !is_new) return {};
    chosen.push_back(expert);
  }
  return chosen;
}

}  // namespace

std::vector<std::size_t> ExpertTrace::units(std::size_t token, std::size_t layer) const {
  std::vector<std::size_t> numbers = choices[token * layers + layer];
  for (std::size_t& number : numbers) number += layer * experts;
  return numbers;
}

ExpertTrace modelled_trace(std::size_t layers, std::size_t experts, std::size_t chosen,
                           std::size_t tokens, std::uint64_t seed) {
  ExpertTrace trace{layers, experts, {}};
  std::mt19937_64 random(seed);
  std::vector<Recency> orders(layers, Recency(experts));
  for (std::size_t token = 0; token < tokens; ++token)
    for (Recency& order : orders) trace.choices.push_back(order.choose(chosen, random));
  return trace;
}

ExpertTrace recorded_trace(const std::string& path) {
  std::ifstream file(path);
  ExpertTrace trace;
  std::string line;
  while (std::getline(file, line) && line.starts_with('#')) {
  }
  if (std::sscanf(line.c_str(), "layers %zu experts %zu", &trace.layers, &trace.experts) != 2 ||
      trace.layers == 0)
    refuse(path, "is no trace: it does not begin with \"layers L experts E\"");
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      trace.choices.push_back(choice_of(word, trace.experts));
      if (trace.choices.back().empty())
        refuse(path, "token " + std::to_string(number) + ": \"" + word + "\" are no experts");
    }
    if (trace.choices.size() != number * trace.layers)
      refuse(path, "token " + std::to_string(number) + " has other layers");
  }
  if (trace.choices.empty()) refuse(path, "has no tokens");
  return trace;
}
