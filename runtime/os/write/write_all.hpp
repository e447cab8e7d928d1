// What writes to a descriptor, or makes a file larger. Beyond RLIMIT_FSIZE the system does not just
// fail, but sends SIGXFSZ, which ends the process; memory (memfd) is no exception. So each of these
// compares first, and fails with io (EFBIG). All continue after short counts and signals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/os/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// From where it stands; of any kind.
Result<void> append(int descriptor, std::span<const std::byte> content);
Result<void> write_at(int descriptor, std::uint64_t offset, std::span<const std::byte> content);

Result<void> resize(int descriptor, std::uint64_t bytes);
// Gets space on the disk for a range. Where the file system cannot, nothing is done.
Result<void> reserve_space(int descriptor, std::uint64_t offset, std::uint64_t length);
// Shares the blocks of `source` (FICLONE), as few file systems can.
Result<void> share_blocks(int descriptor, const File& source);

}  // namespace weightmap::os
