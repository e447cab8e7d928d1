// Writing to a descriptor of any kind from where it stands.
#pragma once

#include <cstddef>
#include <span>

#include "weightmap/result.hpp"

namespace weightmap::os {

// All of it. Continues after short counts and signals. Fails with io, also where RLIMIT_FSIZE ends:
// the system would send SIGXFSZ.
Result<void> append(int descriptor, std::span<const std::byte> content);

}  // namespace weightmap::os
