#include "mmap/pages/extents.hpp"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

namespace weightmap::os {

std::optional<std::uint64_t> extents_of(const File& file) noexcept {
  fiemap request{};  // without room for extents it counts them
  request.fm_length = file.size();
  if (::ioctl(file.descriptor(), FS_IOC_FIEMAP, &request) != 0) return std::nullopt;
  return request.fm_mapped_extents;
}

}  // namespace weightmap::os
