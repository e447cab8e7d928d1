// This process's own memory: read without faulting, and counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Copies `from`, parts of which may lie in unreadable pages. Those fail with io, with the offset in
// `from` of the first missing byte; no signal is raised. Precondition: both have the same size.
// Uses process_vm_readv, or /proc/self/mem if a seccomp filter refuses that.
Result<void> copy_own_memory(std::span<const std::byte> from, std::span<std::byte> to);

// Returns the bytes of files, and of shared memory, that this process has mapped and that are in
// memory; 0 if the system does not tell.
std::uint64_t resident_file_bytes() noexcept;

}  // namespace weightmap::os
