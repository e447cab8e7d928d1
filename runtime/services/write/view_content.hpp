// The elements of a tensor as content of a file.
#pragma once

#include "weightmap/new_file.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

// Returns all elements row-major, without gaps and in this machine's byte order. Elements in that
// form are borrowed; others are gathered in pieces during the write. Also borrows the view's shape.
// Gathering fails with unsupported for lazy conjugates and negatives.
RecordContent content_of(const TensorView& view);

}  // namespace weightmap
