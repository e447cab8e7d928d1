// Shared memory without a name that becomes immutable once it is sealed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/system/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Makes a file of `bytes` zeros that lives in memory while a process has it open or mapped, to be
// filled and sealed. It is open for reading and writing, close-on-exec, and not executable if the
// kernel supports that. `label`, cut to the system's maximum, appears in /proc as "/memfd:label".
// Takes no memory before it is written to. Fails with io if the system refuses.
Result<UniqueFd> make_memfd(std::uint64_t bytes, const std::string& label = "weightmap");

// Afterwards no process with the descriptor, including this one, can write to it, map it for
// writing, change its size, or undo the seal. Fails with io if the system refuses, as it does while
// a writable mapping exists.
Result<void> seal(int descriptor);

// Does the same, but existing writable mappings stay, for a driver that pins such memory with write
// intent. Fails likewise; kernels before 5.1 refuse.
Result<void> seal_but_for_mappings(int descriptor);

// Does the same to its size alone: whoever has it may write to it, and none can cut it.
Result<void> seal_size(int descriptor);

// Returns another descriptor of the same file, read-only and close-on-exec. Kernels before 6.7
// share a mapping of sealed memory only through such a one. Without /proc it is another descriptor
// of the same open file, which is writable unless the memory is sealed.
Result<UniqueFd> reopen_for_reading(int descriptor);

// Opens, for writing, what another process of this user has as this descriptor, if it is memory of
// sealed size. Fails with io if it is not, or cannot be reached (another container).
Result<UniqueFd> open_memory_of(std::uint32_t process, std::uint32_t descriptor);
// True if that is the memory that this process has as `own`.
bool is_memory_of(int own, std::uint32_t process, std::uint32_t descriptor);
Result<std::uint64_t> size_of_memory(int descriptor);

// Returns "/proc/PID/fd/N", for other processes of this user while this one has it open.
std::filesystem::path path_of_descriptor(int descriptor);

}  // namespace weightmap::os
