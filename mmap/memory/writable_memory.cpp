#include "mmap/memory/writable_memory.hpp"

#include <sys/mman.h>

#include <string>

#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {

Result<Reservation> map_for_writing(int descriptor, std::uint64_t bytes) {
  Reservation mapped(bytes, os::large_page, Reservation::Access::none);
  if (!mapped.bytes().empty() && ::mmap(mapped.bytes().data(), bytes, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_FIXED, descriptor, 0) != MAP_FAILED)
    return mapped;
  return os::os_failure("map " + std::to_string(bytes) + " bytes of shared memory");
}

}  // namespace weightmap::mmap
