// What every reader of a mapped file says when the file has become shorter.
#pragma once

#include <cstdint>

#include "runtime/os/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Fails with io, at the first byte that is missing, if the file does not reach to the end of this
// range any more.
Result<void> check_not_truncated(const File& file, std::uint64_t offset, std::uint64_t length);

}  // namespace weightmap::os
