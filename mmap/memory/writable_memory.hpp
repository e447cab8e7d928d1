// Maps shared memory for writing.
#pragma once

#include <cstdint>

#include "mmap/reservation.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// Maps the first `bytes`, at least one, of the file that `descriptor` has open for writing, at an
// address that is a multiple of large_page. Fails with io if the system refuses.
Result<Reservation> map_for_writing(int descriptor, std::uint64_t bytes);

}  // namespace weightmap::mmap
