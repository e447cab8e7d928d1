// An array of numpy as a tensor of a list.
#pragma once

#include <string_view>

#include "runtime/formats/format/own_storages.hpp"
#include "runtime/formats/npz/array_header.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::npz {

// Adds the sizes and strides of an array to `list`, and returns its tensor, of which `begin` is 0
// and `end` the bytes of its elements. OpenOptions::dtypes tells the type of an opaque one; fails
// with invalid_argument if that has another size, with corrupt if a product does not fit.
// Precondition: the type is not foreign.
Result<format::ListedTensor> list_array(std::string_view name, const ArrayHeader& header,
                                        const OpenOptions& options, format::TensorList& list);

}  // namespace weightmap::npz
