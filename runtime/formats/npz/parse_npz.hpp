// NumPy's .npz: a zip archive in which each record is a .npy array, of which the name without
// ".npy" is the tensor's; records with other names are named as not listed. Its elements are mapped
// where the record is stored, and inflated like a compressed storage of torch where it is deflated
// (np.savez_compressed). And .npy: a file of one array, whose elements are mapped where they lie;
// the file has no name for it, and it is listed as "arr_0", as numpy.savez() names an array without
// a name. The value trees are empty dicts.
#pragma once

#include "runtime/formats/format/format.hpp"

namespace weightmap::npz {

// Returns true for an archive with a record "*.npy" and without the records of torch's formats.
bool is_archive(const zip::Directory& directory);

// See FormatRow.
Result<format::Parsed> parse(format::Input& input, const OpenOptions& options, OpenStats& stats,
                             std::pmr::memory_resource& memory);

// Reads all headers afresh and compares where the elements are.
Result<void> verify_headers(format::Input& input, const catalog::Catalog& catalog,
                            const Limits& limits);

// See FormatRow. Fails with unsupported for an array that no tensor is. What is behind the array,
// such as one more of numpy.save() to the same open file, is counted as unread.
Result<format::Parsed> parse_npy(format::Input& input, const OpenOptions& options, OpenStats& stats,
                                 std::pmr::memory_resource& memory);

}  // namespace weightmap::npz
