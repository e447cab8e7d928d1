// What makes a start slow, and what to do about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/doctor/tensor_facts.hpp"
#include "weightmap/residency.hpp"
#include "weightmap/surroundings.hpp"

namespace weightmap::cli::doctor {

// All that the findings are drawn from; tests make up machines that are not at hand.
struct Facts {
  std::string file;  // as it was given
  Surroundings around;
  bool lives_in_memory = false;
  std::optional<Residency> residency;
  std::string residency_problem;  // why there is none
  TensorFacts tensors;
  std::optional<DType> wanted;  // what the tensors are to be used as
  std::uint64_t inflated_storages = 0;
  std::uint64_t inflated_bytes = 0;
};

struct Finding {
  enum State : std::uint8_t { good, slow, unknown };
  std::string_view topic;
  State state = good;
  std::string found = {};
  std::string advice = {};  // a command or a setting, if the state is slow
};

// As a shell takes it: in quotes if need be, and what a terminal must not get as bash writes it.
std::string quoted(const std::string& text);

std::string_view to_string(Finding::State state) noexcept;  // "good", "slow", "unknown"

// One for each topic, always in the same order: where the file lies, what of it is in memory, what
// the tensors cost, the kernel.
std::vector<Finding> findings(const Facts& facts);

}  // namespace weightmap::cli::doctor
