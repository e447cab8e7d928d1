// Tells file systems that drop what is cached of a file whenever anybody opens it, by one of their
// files each.
#pragma once

#include <filesystem>

namespace weightmap::cli::start {

// True if the file system of the file, or of the first file of a folder, is one. The answer is kept
// for as long as this process lives, so that no more files are opened than the first. May be called
// by several threads at once.
bool drops_pages_at_open(const std::filesystem::path& path);

}  // namespace weightmap::cli::start
