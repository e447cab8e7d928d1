// Finds causes of a slow start, and suggests remedies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/services/inspect/surroundings.hpp"
#include "tools/doctor/tensor_facts.hpp"
#include "weightmap/inspect.hpp"

namespace weightmap::cli::doctor {

// The input of all findings; tests construct machines.
struct Facts {
  std::string file;  // the user's argument
  Surroundings around;
  bool lives_in_memory = false;
  bool drops_pages_at_open = false;  // the file system, as inspect.hpp says
  std::optional<Residency> residency;
  std::string residency_problem;  // the reason why there is no residency
  TensorFacts tensors;
  std::optional<DType> wanted;  // the type to which tensors will be converted
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

// Quotes text for a shell where needed, with bash's escapes for unsafe characters.
std::string quoted(const std::string& text);

std::string_view to_string(Finding::State state) noexcept;  // "good", "slow", "unknown"

// Returns one finding for each topic, always in the same order: the file's storage, its residency,
// the tensors' costs, the kernel.
std::vector<Finding> findings(const Facts& facts);

}  // namespace weightmap::cli::doctor
