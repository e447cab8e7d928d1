// Reading this process's own memory without faulting.
#pragma once

#include <cstddef>
#include <span>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Copies `from`, some of which may lie in pages that cannot be had. Those fail with io, with the
// offset in `from` of the first that is missing; no signal is raised. Precondition: both are of the
// same size. By process_vm_readv, or /proc/self/mem where a filter on system calls refuses that.
Result<void> copy_own_memory(std::span<const std::byte> from, std::span<std::byte> to);

}  // namespace weightmap::os
