// NumPy's .npy: a file of one array, whose elements are mapped where they lie. The file has no name
// for it; it is listed as "arr_0", as numpy.savez() names an array without a name.
#pragma once

#include <memory_resource>

#include "runtime/formats/format/format.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::npz {

// See FormatRow. The value tree is an empty dict. Fails with unsupported for an array that no
// tensor is. What is behind the array, such as one more of numpy.save() to the same open file, is
// counted as unread.
Result<format::Parsed> parse_npy(format::Input& input, const OpenOptions& options, OpenStats& stats,
                                 std::pmr::memory_resource& memory);

}  // namespace weightmap::npz
