// Finds causes of a slow start, and suggests remedies.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/services/inspect/surroundings.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/inspect.hpp"

namespace weightmap::cli::doctor {

// Facts about a checkpoint's tensors that affect the time of a start. Bytes that several tensors
// share count once; sums saturate.
struct TensorFacts {
  std::map<DType, std::uint64_t> bytes;  // in the file
  // If another type is wanted: the private memory of each process for converted tensors, which are
  // float64, float32, float16 and bfloat16.
  std::uint64_t converted_bytes = 0;
  // Tensors not at a multiple of their element's size (8 at most), which torch copies.
  std::uint64_t misaligned = 0;
  std::uint64_t misaligned_bytes = 0;
  std::uint64_t foreign = 0;  // tensors in the other byte order, which are swapped into a copy
  std::uint64_t foreign_bytes = 0;
};

TensorFacts tensor_facts(const Checkpoint& checkpoint, std::optional<DType> wanted);

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
