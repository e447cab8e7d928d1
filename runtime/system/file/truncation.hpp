// Reports a truncated file, for every reader of a mapping.
#pragma once

#include <cstdint>

#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Fails with io, at the first missing byte, if the file no longer reaches to the end of this range.
Result<void> check_not_truncated(const File& file, std::uint64_t offset, std::uint64_t length);

}  // namespace weightmap::os
