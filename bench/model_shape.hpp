// Names and shapes of the tensors to write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weightmap::bench {

struct TensorShape {
  std::string name;
  std::vector<std::int64_t> shape;
};

struct ModelSize {
  std::int64_t layers = 8;
  std::int64_t hidden = 2048;
  std::int64_t vocabulary = 32000;
};

// A decoder-only language model with common names and proportions.
std::vector<TensorShape> language_model(const ModelSize& size);

// `count` tensors of one shape: "tensor.0", "tensor.1", ...
std::vector<TensorShape> uniform(std::size_t count, const std::vector<std::int64_t>& shape);

// Returns the number of elements of one tensor.
std::int64_t numel(const TensorShape& tensor) noexcept;

}  // namespace weightmap::bench
