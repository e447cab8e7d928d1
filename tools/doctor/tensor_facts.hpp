// Facts about a checkpoint's tensors that affect the time of a start.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "weightmap/checkpoint.hpp"

namespace weightmap::cli::doctor {

// Bytes that several tensors share count once; sums saturate.
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

}  // namespace weightmap::cli::doctor
