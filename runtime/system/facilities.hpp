// Facilities of the running kernel. They are tested by calls, not by version: distributions
// backport features, and seccomp filters refuse existing calls.
#pragma once

#include <string>

namespace weightmap::os {

bool has_populate_read() noexcept;  // MADV_POPULATE_READ
bool has_cachestat() noexcept;

std::string kernel_release();  // "6.18.1"; empty if the system does not report it
// Returns "always", "madvise" or "never", the huge page setting for memory; empty without any.
std::string huge_page_setting();

}  // namespace weightmap::os
