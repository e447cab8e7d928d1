// Briefly maps parts of a file beside its main mapping, which is unaffected by advice given here;
// and what that tells of the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mmap/reservation.hpp"
#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {

// Read-only. Not guarded: pages are populated and inspected here, but never read by address.
class FileWindow {
 public:
  // The parts side by side, at an address that is a multiple of `alignment`, which is a power of
  // two and at least a page. The offsets are multiples of it, too, and so are the lengths but for
  // the last one.
  FileWindow(const os::File& file, std::span<const ByteRange> parts,
             std::uint64_t alignment) noexcept;

  std::span<std::byte> bytes() const noexcept { return bytes_; }  // empty: the system refused

 private:
  bool map_part(std::span<std::byte> at, const os::File& file, std::uint64_t offset) noexcept;

  Reservation reservation_;
  std::span<std::byte> bytes_;
};

// Touches one page without read-ahead, and checks whether the whole 2 MiB around it were read. If
// so (Linux 5.18, huge pages requested, a file system with large folios), exact reads are as fast
// as read-ahead; otherwise they would go by single pages. Also false if the cache holds small pages
// there, the page cannot be read, or 2 MiB do not lie in the file. Leaves nothing mapped.
// Precondition: offset is a multiple of large_page.
bool reads_large_pages(const os::File& file, std::uint64_t offset);

// Does the same with the first 2 MiB of a window; if true, read-ahead stays disabled in the window.
bool reads_large_pages(const FileWindow& window);

// True for a file of FUSE without FOPEN_KEEP_CACHE, or with direct_io, also under an overlay: an
// open by any process drops all of its pages, mapped and locked ones too. Finds out by opening the
// file once more; opens nothing on other file systems. Also false if the system does not tell.
bool drops_pages_at_open(const os::File& file);

}  // namespace weightmap::mmap
