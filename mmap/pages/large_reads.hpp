// Tests whether this system reads a file in huge pages.
#pragma once

#include <cstdint>

#include "mmap/pages/file_window.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {

// Touches one page without read-ahead, and checks whether the whole 2 MiB around it were read. If
// so (Linux 5.18, huge pages requested, a file system with large folios), exact reads are as fast
// as read-ahead; otherwise they would go by single pages. Also false if the cache holds small pages
// there, the page cannot be read, or 2 MiB do not lie in the file. Leaves nothing mapped.
// Precondition: offset is a multiple of large_page.
bool reads_large_pages(const os::File& file, std::uint64_t offset);

// Does the same with the first 2 MiB of a window; if true, read-ahead stays disabled in the window.
bool reads_large_pages(const FileWindow& window);

}  // namespace weightmap::mmap
