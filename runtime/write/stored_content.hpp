// The bytes of a storage as its file has them.
#pragma once

#include <cstdint>

#include "weightmap/checkpoint.hpp"
#include "weightmap/record_content.hpp"

namespace weightmap {

// `count` bytes of the storage from `first` on, which are read as they are written: by pread, since
// a file that is cut meanwhile must be an error. Where the file has a CRC-32 of the storage, all of
// it is read and compared. Borrows the checkpoint.
RecordContent stored_content(const Checkpoint& checkpoint, const NamedStorage& storage,
                             std::uint64_t first, std::uint64_t count);

}  // namespace weightmap
