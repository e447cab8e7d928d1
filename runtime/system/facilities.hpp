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

// Returns true if free memory goes back to the host (free page reporting: `page_reporting_order` is
// above 0 in /sys/module/page_reporting/parameters). Then a page that the disk has filled still
// costs the first processor that touches it microseconds, since only then does the host map it.
// Asked once in each process.
bool host_takes_back_free_memory() noexcept;

}  // namespace weightmap::os
