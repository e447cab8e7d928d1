// Functions that write to a descriptor or enlarge a file. Beyond RLIMIT_FSIZE the system sends
// SIGXFSZ, which ends the process, also for a memfd. So each of these checks first, and fails with
// io (EFBIG). All continue after short counts and signals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

Result<void> write_at(int descriptor, std::uint64_t offset, std::span<const std::byte> content);

Result<void> resize(int descriptor, std::uint64_t bytes);
// Allocates disk space for a range. Does nothing if the file system does not support it.
Result<void> reserve_space(int descriptor, std::uint64_t offset, std::uint64_t length);
// Writes the content to the disk, and returns when it is there.
Result<void> sync(int descriptor);
// Shares the blocks of `source` (FICLONE), which few file systems support.
Result<void> share_blocks(int descriptor, const File& source);

// Fails with io (EFBIG) for more bytes than RLIMIT_FSIZE allows.
Result<void> check_size_limit(std::uint64_t bytes);

}  // namespace weightmap::os
