// How many files the process may have open.
#pragma once

#include <cstddef>

namespace weightmap::os {

// Makes room for so many more descriptors: if they and those that are open by now are more than
// half of the soft limit (RLIMIT_NOFILE), raises it by as many, up to the hard limit, so that the
// rest of the program has as much room as before. Does nothing for few files, or where the limit
// cannot be changed. Returns true if it changed the limit of the process.
bool make_room_for_descriptors(std::size_t count) noexcept;

}  // namespace weightmap::os
