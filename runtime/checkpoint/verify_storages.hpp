// Checks of an open checkpoint that read the file again.
#pragma once

#include <functional>

#include "mmap/file.hpp"
#include "runtime/catalog/catalog.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {

// Reads the central directory afresh and compares each storage's offset with its local header.
Result<void> verify_storage_headers(const os::File& file, const catalog::Catalog& catalog);

// Reads every storage and compares its CRC-32 with the directory's.
Checkpoint::CrcReport verify_storage_crcs(
    const os::File& file, const catalog::Catalog& catalog,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress);

}  // namespace weightmap
