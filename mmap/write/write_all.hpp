// Writes all of some bytes to a descriptor.
#pragma once

#include <cstddef>
#include <span>

namespace weightmap::os {

// Continues after short counts and signals. False, with errno, if the system refuses.
bool write_all(int descriptor, std::span<const std::byte> content) noexcept;

}  // namespace weightmap::os
