// Tells file systems that drop what is cached of a file whenever anybody opens it.
#pragma once

#include <filesystem>

#include "runtime/os/file/file.hpp"

namespace weightmap::mmap {

bool is_on_fuse(const os::File& file) noexcept;

// True for a file of FUSE without FOPEN_KEEP_CACHE, or with direct_io, also under an overlay: an
// open by any process drops all of its pages, mapped and locked ones too. Finds out by opening the
// file once more; opens nothing on other file systems. Also false if the system does not tell.
bool drops_pages_at_open(const os::File& file);

// The same of the file, or of the first file of a folder. The answer for a file system is kept for
// as long as this process lives, and its files are opened for none but the first.
bool drops_pages_at_open(const std::filesystem::path& path);

}  // namespace weightmap::mmap
