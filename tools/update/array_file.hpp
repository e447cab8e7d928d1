// The elements of one tensor in a file: an array of numpy, or bytes as they are.
#pragma once

#include <filesystem>

#include "weightmap/record_content.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::cli {

// The elements of a .npy file, which are read when they are written. Fails with invalid_argument,
// naming the field, unless the file is one of version 1 to 3, of elements of the view's type in
// this machine's byte order, row-major, of its shape, and as long as its header says. For a type
// that numpy does not have, integers or void of its size are taken for its bits.
Result<RecordContent> npy_elements(const std::filesystem::path& path, const TensorView& view);

// All bytes of the file.
Result<RecordContent> raw_elements(const std::filesystem::path& path);

}  // namespace weightmap::cli
