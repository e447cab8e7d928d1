// Reads this process's own memory without faulting.
#pragma once

#include <cstddef>
#include <span>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Copies `from`, parts of which may lie in unreadable pages. Those fail with io, with the offset in
// `from` of the first missing byte; no signal is raised. Precondition: both have the same size.
// Uses process_vm_readv, or /proc/self/mem if a seccomp filter refuses that.
Result<void> copy_own_memory(std::span<const std::byte> from, std::span<std::byte> to);

}  // namespace weightmap::os
