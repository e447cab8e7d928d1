#include "runtime/system/write/in_place.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/bytes/round_up.hpp"
#include "runtime/system/write/write_all.hpp"

namespace weightmap::os {

Result<void> write_in_place(const File& file, std::uint64_t offset,
                            std::span<const std::byte> content) {
  return write_at(file.descriptor(), offset, content);
}

Result<void> fill_holes(const File& file, std::uint64_t offset, std::uint64_t length) {
  return reserve_space(file.descriptor(), offset, length);
}

Result<void> sync_content(const File& file) { return sync(file.descriptor()); }

Holes find_holes(const File& file, std::uint64_t offset, std::uint64_t length) noexcept {
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) return {};
  const auto block = static_cast<std::uint64_t>(status.st_blksize);
  const std::uint64_t first = bytes::round_up(offset, block);
  const std::uint64_t end = (offset + length) / block * block;
  Holes found;
  bool ends_in_hole = false;
  for (std::uint64_t at = first; at < end;) {
    const off_t data = ::lseek(file.descriptor(), static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno != ENXIO) return {};
    const std::uint64_t behind = data < 0 ? end : std::min(end, static_cast<std::uint64_t>(data));
    found.bytes += behind - at;
    ends_in_hole = behind == end && behind > at;
    if (behind == end) break;
    const off_t hole = ::lseek(file.descriptor(), data, SEEK_HOLE);
    if (hole <= data) return {};
    at = static_cast<std::uint64_t>(hole);
  }
  const bool ends_file = end + block >= file.size();
  found.is_unwritten =
      found.bytes > 0 && (found.bytes == end - first || (ends_in_hole && ends_file));
  return found;
}

}  // namespace weightmap::os
