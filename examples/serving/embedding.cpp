#include "examples/serving/embedding.hpp"

#include <algorithm>
#include <string>

namespace serving {
namespace {

using weightmap::DType;
using weightmap::ErrorCode;
using weightmap::failure;
using weightmap::NamedTensor;
using weightmap::Result;

template <class Number>
Result<AnyMatrix> matrix_of(const NamedTensor& tensor) {
  const auto columns = static_cast<std::size_t>(tensor.view.shape()[1]);
  return tensor.view.as<typename Number::Stored>().map([&](auto stored) -> AnyMatrix {
    return Matrix<Number>{stored, columns};
  });
}

Result<AnyMatrix> any_matrix_of(const NamedTensor& tensor) {
  switch (tensor.view.dtype()) {
    case DType::float64:
      return matrix_of<Float64>(tensor);
    case DType::float32:
      return matrix_of<Float32>(tensor);
    case DType::float16:
      return matrix_of<Float16>(tensor);
    case DType::bfloat16:
      return matrix_of<BFloat16>(tensor);
    default:
      return failure(ErrorCode::invalid_argument, std::string(tensor.name) + " is of " +
                                                      std::string(to_string(tensor.view.dtype())) +
                                                      ", not a matrix of real numbers");
  }
}

}  // namespace

Result<Embedding> Embedding::of(const NamedTensor& tensor) {
  if (tensor.view.rank() != 2 || tensor.view.numel() == 0)
    return failure(ErrorCode::invalid_argument,
                   std::string(tensor.name) + " is not a matrix with rows in it");
  return any_matrix_of(tensor).map(
      [&](const AnyMatrix& matrix) { return Embedding(tensor.name, matrix); });
}

std::size_t Embedding::rows() const noexcept {
  return std::visit([](const auto& matrix) { return matrix.rows(); }, matrix_);
}

std::vector<double> Embedding::row(std::size_t id) const {
  const auto values = [&]<class Number>(const Matrix<Number>& matrix) {
    std::vector<double> row(matrix.columns);
    std::ranges::transform(matrix.row(id), row.begin(), Number::value);
    return row;
  };
  return std::visit(values, matrix_);
}

}  // namespace serving
