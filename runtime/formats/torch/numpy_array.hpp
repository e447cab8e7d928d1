// numpy arrays whose elements are in the pickle itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weightmap/dtype.hpp"
#include "weightmap/value.hpp"

namespace weightmap::torch {

struct NumpyArray {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements; of C or Fortran order, without gaps
  std::uint64_t position;             // of the first element; see Tree::text()
  std::uint64_t nbytes;
  bool is_in_pickle;  // false: protocols 0 to 2 spell bytes as text, which the tree has decoded
};

// Returns the array that an object represents if numpy's pickling made it and its elements can be
// used as they are: numbers or bools in this machine's byte order, as many as the shape needs.
// Returns nullopt for everything else, which stays an object. At most 64 dimensions, numpy's own
// limit. The elements may have any alignment, and can be mapped only if they are raw in a pickle
// that is not compressed.
std::optional<NumpyArray> numpy_array(const Value& object);

}  // namespace weightmap::torch
