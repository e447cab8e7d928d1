// Numbers and arrays of numpy, and bytes, whose content stands in the pickle itself.
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

// What numpy's pickles say of a type: float64 for dtype("f8"). nullopt for what is no number.
std::optional<DType> numpy_dtype(const Value& value);

// The bytes of a value: as such, or as protocol 2 has them, _codecs.encode(text, "latin1").
std::optional<std::vector<std::byte>> bytes_in(const Value& value);

// What an array of numpy was pickled from.
struct NumpyParts {
  Value dtype;
  Value shape;
  Value content;
  bool is_fortran;
};
std::optional<NumpyParts> numpy_array_parts(const Value& object);

// Elements in this machine's byte order, which view() shows as a tensor does.
struct NumpyValue {
  Elements elements;
  std::vector<std::int64_t> dims;  // sizes, then strides

  std::string type_name() const { return "numpy." + std::string(to_string(elements.dtype)); }
  TensorView view() const {
    return {elements.dtype,        dims.size() / 2,       dims.data(),
            elements.bytes.data(), elements.bytes.size(), 0};
  }
};

// nullopt unless the elements are numbers or bools, as many as the shape says.
std::optional<NumpyValue> numpy_scalar(const Value& object);
std::optional<NumpyValue> numpy_array(const Value& object);
// Bytes as an array of uint8.
std::optional<NumpyValue> bytes_as_array(const Value& value);

}  // namespace weightmap::cli
