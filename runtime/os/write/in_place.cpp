#include "runtime/os/write/in_place.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/bytes/round_up.hpp"
#include "runtime/os/write/write_all.hpp"

namespace weightmap::os {

Result<void> write_in_place(const File& file, std::uint64_t offset,
                            std::span<const std::byte> content) {
  return write_at(file.descriptor(), offset, content);
}

Result<void> fill_holes(const File& file, std::uint64_t offset, std::uint64_t length) {
  return reserve_space(file.descriptor(), offset, length);
}

Result<void> sync_content(const File& file) { return sync(file.descriptor()); }

bool is_hole(const File& file, std::uint64_t offset, std::uint64_t length) noexcept {
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) return false;
  const auto block = static_cast<std::uint64_t>(status.st_blksize);
  const std::uint64_t first = bytes::round_up(offset, block);
  const std::uint64_t end = (offset + length) / block * block;
  if (first >= end) return false;
  const off_t data = ::lseek(file.descriptor(), static_cast<off_t>(first), SEEK_DATA);
  if (data < 0) return errno == ENXIO;
  return static_cast<std::uint64_t>(data) >= end;
}

}  // namespace weightmap::os
