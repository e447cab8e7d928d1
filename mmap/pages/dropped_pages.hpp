// Tells file systems that drop what is cached of a file whenever anybody opens it.
#pragma once

#include "runtime/system/file/file.hpp"

namespace weightmap::mmap {

// True for a file of FUSE without FOPEN_KEEP_CACHE, or with direct_io, also under an overlay: an
// open by any process drops all of its pages, mapped and locked ones too. Finds out by opening the
// file once more; opens nothing on other file systems. Also false if the system does not tell.
bool drops_pages_at_open(const os::File& file);

}  // namespace weightmap::mmap
