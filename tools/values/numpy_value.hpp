// Numbers and arrays of numpy, and bytes, whose content is in the pickle itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/cat/elements.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/value.hpp"

namespace weightmap::cli {

// Returns the type that a numpy pickle describes: float64 for dtype("f8"). nullopt if not numeric.
std::optional<DType> numpy_dtype(const Value& value);

// The parts of a pickled numpy array.
struct NumpyParts {
  Value dtype;
  Value shape;
  Value content;
  bool is_fortran;
};
std::optional<NumpyParts> numpy_array_parts(const Value& object);

// Elements in this machine's byte order; view() presents them as a tensor.
struct NumpyValue {
  Elements elements;
  std::vector<std::int64_t> dims;  // sizes, then strides

  std::string type_name() const { return "numpy." + std::string(to_string(elements.dtype)); }
  TensorView view() const {
    return {elements.dtype,        dims.size() / 2,       dims.data(),
            elements.bytes.data(), elements.bytes.size(), 0};
  }
};

// Return nullopt unless the elements are numbers or bools, as many as the shape states.
std::optional<NumpyValue> numpy_scalar(const Value& object);
std::optional<NumpyValue> numpy_array(const Value& object);
// Returns bytes as an array of uint8.
std::optional<NumpyValue> bytes_as_array(const Value& value);

}  // namespace weightmap::cli
