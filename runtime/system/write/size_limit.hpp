// The limit on the size of files.
#pragma once

#include <cstdint>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Fails with io (EFBIG) for more bytes than RLIMIT_FSIZE allows. Write functions check it
// themselves (write_all.hpp).
Result<void> check_size_limit(std::uint64_t bytes);

}  // namespace weightmap::os
