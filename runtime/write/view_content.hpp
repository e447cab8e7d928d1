// The elements of a tensor as what a file is filled with.
#pragma once

#include "weightmap/record_content.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

// All elements row-major, without gaps and in this machine's byte order: where they lie like that
// they are borrowed, else gathered in pieces as they are written. The view's shape is borrowed,
// too. Gathering fails with unsupported for lazy conjugates and negatives.
RecordContent content_of(const TensorView& view);

}  // namespace weightmap
