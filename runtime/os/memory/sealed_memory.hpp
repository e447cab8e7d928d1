// Shared memory without a name, whose content nobody can change once it is sealed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/os/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// A file of `bytes` zeros that lives in memory as long as somebody has it open or mapped, to be
// filled and sealed. Open for reading and writing, close-on-exec, not executable where the kernel
// knows of that. `label`, cut to what the system takes, is what /proc shows of it: "/memfd:label".
// Takes no memory before it is written to. Fails with io if the system refuses.
Result<UniqueFd> make_memfd(std::uint64_t bytes, const std::string& label = "weightmap");

// From here on nobody, neither this process nor who gets the descriptor, can write to it, map it
// for writing, change its size, or take this back. Fails with io if the system refuses, as it does
// while a writable mapping of it exists.
Result<void> seal(int descriptor);

// The same for everybody but those who have it mapped for writing already, who keep that: a driver
// pins such memory with write intent. Fails likewise; kernels before 5.1 refuse.
Result<void> seal_but_for_mappings(int descriptor);

// Another descriptor of the same file, for reading only and close-on-exec. Kernels before 6.7 share
// the mapping of sealed memory only through such a one. Without /proc it is another descriptor of
// the same open file, which can be written through unless the memory is sealed.
Result<UniqueFd> reopen_for_reading(int descriptor);

// "/proc/PID/fd/N": where other processes of this user find what it leads to, while this process
// has it open.
std::filesystem::path path_of_descriptor(int descriptor);

}  // namespace weightmap::os
