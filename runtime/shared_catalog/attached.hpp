// A catalog that another process made.
#pragma once

#include "mmap/process/shared_block.hpp"
#include "runtime/shared_catalog/published.hpp"

namespace weightmap {

struct Attached {
  os::SharedBlock block;
  catalog::Published published;  // in the block
  bool is_file;                  // in the runtime directory; else it was passed as a descriptor
};

}  // namespace weightmap
