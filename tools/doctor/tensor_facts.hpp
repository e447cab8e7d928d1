// What the tensors of a checkpoint are, as far as it decides how fast a start is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "weightmap/checkpoint.hpp"

namespace weightmap::cli::doctor {

// Bytes that several tensors share count once; sums stop at the largest number.
struct TensorFacts {
  std::map<DType, std::uint64_t> bytes;  // in the file
  // With another type wanted: what its tensors take in memory that each process has for itself.
  // float64, float32, float16 and bfloat16 are converted.
  std::uint64_t converted_bytes = 0;
  // Begin at no multiple of their element's size (8 at most), so that torch copies them.
  std::uint64_t misaligned = 0;
  std::uint64_t misaligned_bytes = 0;
  std::uint64_t foreign = 0;  // in the other byte order, so they are swapped into a copy
  std::uint64_t foreign_bytes = 0;
};

TensorFacts tensor_facts(const Checkpoint& checkpoint, std::optional<DType> wanted);

}  // namespace weightmap::cli::doctor
