// What becomes of the addresses of a mapping that has ended, which views may still point to.
#pragma once

#include <cstdint>
#include <string_view>

#include "mmap/mapping.hpp"

namespace weightmap::mmap {

// Unmaps it. In a debug build of the library (NDEBUG is not defined) its addresses stay reserved
// without access, those of the last 64 mappings, so that no later mapping takes them, and what
// reads or writes there ends the process with one line on standard error that has `name`, and
// SIGABRT. Does only the former where the system refuses the latter.
void close(Mapping mapping, std::string_view name) noexcept;

// Async-signal-safe. Ends the process like that if the address is one of those.
void abort_if_closed(std::uintptr_t address) noexcept;

}  // namespace weightmap::mmap
