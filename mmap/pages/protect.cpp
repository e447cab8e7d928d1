#include "mmap/pages/protect.hpp"

#include <sys/mman.h>

#include "mmap/os_error.hpp"

namespace weightmap::os {

Result<void> protect(const MappedArea& area) {
  const int protection = area.executable ? PROT_READ | PROT_EXEC : PROT_READ;
  if (::mprotect(reinterpret_cast<void*>(area.begin), area.end - area.begin, protection) == 0)
    return {};
  return os_failure("make a mapping read-only");
}

}  // namespace weightmap::os
