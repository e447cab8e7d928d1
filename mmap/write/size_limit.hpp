// How large a file this process may make.
#pragma once

#include <cstdint>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Fails with io (EFBIG) for more bytes than RLIMIT_FSIZE allows. Beyond that limit write(),
// ftruncate(), fallocate(), FICLONE and sendfile(), also to memory (memfd), do not just fail: they
// send SIGXFSZ, which ends the process. So this is called before any of them.
Result<void> check_size_limit(std::uint64_t bytes);

}  // namespace weightmap::os
