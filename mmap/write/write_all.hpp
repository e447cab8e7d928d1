// Writing to a descriptor, all of it: both continue after short counts and signals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weightmap/result.hpp"

namespace weightmap::os {

// From where it stands; of any kind. Fails with io, also where RLIMIT_FSIZE ends: the system would
// send SIGXFSZ.
Result<void> append(int descriptor, std::span<const std::byte> content);

// From `offset` on, which the caller has compared with RLIMIT_FSIZE (size_limit.hpp).
Result<void> write_at(int descriptor, std::uint64_t offset, std::span<const std::byte> content);

}  // namespace weightmap::os
