// Whether this system brings a file in by large pages, seen by trying.
#pragma once

#include <cstdint>

#include "mmap/pages/file_window.hpp"
#include "runtime/os/file/file.hpp"
#include "runtime/os/page_size.hpp"

namespace weightmap::mmap {

// Touches one page with nothing read ahead, and looks whether the whole 2 MiB around it came with
// it. Where that is so (Linux 5.18, huge pages asked for, a file system with large folios), reading
// exactly what is wanted is as fast as reading ahead; elsewhere it would go by single pages. Also
// false where what is cached lies in small pieces, the page cannot be read, or 2 MiB do not lie in
// the file. Nothing is mapped afterwards.
// Precondition: offset is a multiple of large_page.
bool reads_large_pages(const os::File& file, std::uint64_t offset);

// The same of the first 2 MiB of a window, from where on nothing is read ahead in the window if so.
bool reads_large_pages(const FileWindow& window);

}  // namespace weightmap::mmap
