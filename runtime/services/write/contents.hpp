// Contents of files that are written: the elements of a tensor, the bytes of a storage.
#pragma once

#include <cstdint>

#include "weightmap/checkpoint.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

// Returns all elements row-major, without gaps and in this machine's byte order. Elements in that
// form are borrowed; others are gathered in pieces during the write. Also borrows the view's shape.
// Gathering fails with unsupported for lazy conjugates and negatives.
RecordContent content_of(const TensorView& view);

// Returns `count` bytes of the storage from `first` on as a content that is read with pread while
// it is written, so that a truncated file is an error. If the file has a CRC-32 of the storage, all
// of it is read and compared. Borrows the checkpoint.
RecordContent stored_content(const Checkpoint& checkpoint, const NamedStorage& storage,
                             std::uint64_t first, std::uint64_t count);

}  // namespace weightmap
