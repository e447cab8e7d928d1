// What a virtual machine does with memory that is free.
#pragma once

namespace weightmap::os {

// Returns true if free memory goes back to the host (free page reporting: `page_reporting_order` is
// above 0 in /sys/module/page_reporting/parameters). Then a page that the disk has filled still
// costs the first processor that touches it microseconds, since only then does the host map it.
// Asked once in each process.
bool host_takes_back_free_memory() noexcept;

}  // namespace weightmap::os
