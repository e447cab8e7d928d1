#include "runtime/os/file/extents.hpp"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

namespace weightmap::os {
namespace {

// struct fiemap without the array of no length at its end, which no initialiser may have.
struct ExtentCount {
  std::uint64_t start;
  std::uint64_t length;
  std::uint32_t flags;
  std::uint32_t extents;  // out
  std::uint32_t room;     // for none: they are counted
  std::uint32_t reserved;
};
static_assert(sizeof(ExtentCount) == sizeof(fiemap));

}  // namespace

std::optional<std::uint64_t> extents_of(const File& file) noexcept {
  ExtentCount count{0, file.size(), 0, 0, 0, 0};
  if (::ioctl(file.descriptor(), FS_IOC_FIEMAP, &count) != 0) return std::nullopt;
  return count.extents;
}

}  // namespace weightmap::os
