#include "runtime/system/file/extents.hpp"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

namespace weightmap::os {
namespace {

// struct fiemap without its flexible array member, which cannot be initialised.
struct ExtentCount {
  std::uint64_t start;
  std::uint64_t length;
  std::uint32_t flags;
  std::uint32_t extents;  // output
  std::uint32_t room;     // none: extents are only counted
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
