// How large a file this process may make.
#pragma once

#include <cstdint>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Fails with io (EFBIG) for more bytes than RLIMIT_FSIZE allows. What writes compares by itself
// (write_all.hpp).
Result<void> check_size_limit(std::uint64_t bytes);

}  // namespace weightmap::os
