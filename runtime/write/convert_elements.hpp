// Elements of one floating point type as those of another, while they pass by.
#pragma once

#include "weightmap/dtype.hpp"
#include "weightmap/record_content.hpp"

namespace weightmap {

// Whether both are among float64, float32, float16 and bfloat16.
bool can_convert(DType from, DType to) noexcept;

// The elements of `content`, each rounded to the nearest of the other type, of two as near to the
// one with an even last bit; what is too large becomes infinity, NaN stays NaN. From float64 to the
// types of two bytes by way of float32, as torch does it. `is_foreign`: their bytes, and those of
// the result, are in the other order. A part of an element at the end is left out. Preconditions:
// can_convert(), and each part that the content gives, but the last, is a number of whole elements.
RecordContent converted(RecordContent content, DType from, DType to, bool is_foreign);

}  // namespace weightmap
