// The bytes of a storage as they are in its file.
#pragma once

#include <cstdint>

#include "weightmap/checkpoint.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap {

// Returns `count` bytes of the storage from `first` on as a content that is read with pread while
// it is written, so that a truncated file is an error. If the file has a CRC-32 of the storage, all
// of it is read and compared. Borrows the checkpoint.
RecordContent stored_content(const Checkpoint& checkpoint, const NamedStorage& storage,
                             std::uint64_t first, std::uint64_t count);

}  // namespace weightmap
