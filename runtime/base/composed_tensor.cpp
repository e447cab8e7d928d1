#include "weightmap/named_tensor.hpp"

namespace weightmap {

std::string_view to_string(ComposedTensor::Form form) noexcept {
  switch (form) {
    case ComposedTensor::Form::quantized:
      return "quantized";
    case ComposedTensor::Form::per_channel:
      return "per_channel";
    case ComposedTensor::Form::sparse_coo:
      return "sparse_coo";
    case ComposedTensor::Form::sparse_csr:
      return "sparse_csr";
    case ComposedTensor::Form::sparse_csc:
      return "sparse_csc";
    case ComposedTensor::Form::sparse_bsr:
      return "sparse_bsr";
    case ComposedTensor::Form::sparse_bsc:
      return "sparse_bsc";
    case ComposedTensor::Form::nested:
      return "nested";
    case ComposedTensor::Form::meta:
      return "meta";
    case ComposedTensor::Form::subclass:
      return "subclass";
    case ComposedTensor::Form::from_array:
      return "from_array";
    case ComposedTensor::Form::chunked:
      return "chunked";
  }
  return "unknown";
}

}  // namespace weightmap
