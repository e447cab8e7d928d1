// A matrix of a checkpoint, one embedding a row, read where it is mapped.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "examples/serving/number.hpp"
#include "weightmap/checkpoint.hpp"

namespace serving {

template <class Number>
struct Matrix {
  std::span<const typename Number::Stored> stored;  // rows * columns, row-major
  std::size_t columns;

  std::size_t rows() const noexcept { return stored.size() / columns; }
  // Precondition: id < rows().
  std::span<const typename Number::Stored> row(std::size_t id) const noexcept {
    return stored.subspan(id * columns, columns);
  }
};

using AnyMatrix = std::variant<Matrix<Float64>, Matrix<Float32>, Matrix<Float16>, Matrix<BFloat16>>;

// Borrows name and bytes: valid as long as the checkpoint that it is of. Thread-safe.
class Embedding {
 public:
  // Fails with invalid_argument for a tensor that is no matrix of real numbers with a row in it,
  // or that cannot be read in place.
  static weightmap::Result<Embedding> of(const weightmap::NamedTensor& tensor);

  std::string_view name() const noexcept { return name_; }
  const AnyMatrix& matrix() const noexcept { return matrix_; }
  std::size_t rows() const noexcept;
  // The values of one row. Precondition: id < rows().
  std::vector<double> row(std::size_t id) const;

 private:
  Embedding(std::string_view name, AnyMatrix matrix) noexcept : name_(name), matrix_(matrix) {}
  std::string_view name_;
  AnyMatrix matrix_;
};

}  // namespace serving
