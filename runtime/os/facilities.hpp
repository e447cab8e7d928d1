// What the running kernel does for this process. A call tells, not a version: distributions move
// features to older kernels, and filters of system calls refuse what there is.
#pragma once

#include <string>

namespace weightmap::os {

bool has_populate_read() noexcept;  // MADV_POPULATE_READ
bool has_cachestat() noexcept;

std::string kernel_release();  // "6.18.1"; empty: the system does not tell
// "always", "madvise" or "never": whether memory gets huge pages; empty where there are none.
std::string huge_page_setting();

}  // namespace weightmap::os
