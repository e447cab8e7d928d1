#include "mmap/read_depth.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>

#include "mmap/kernel.hpp"

namespace weightmap::os {
namespace {

constexpr std::array<std::uint64_t, 9> local_types{
    EXT4_SUPER_MAGIC, kernel::xfs_magic, BTRFS_SUPER_MAGIC,
    F2FS_SUPER_MAGIC, kernel::zfs_magic, kernel::bcachefs_magic,
    TMPFS_MAGIC,      RAMFS_MAGIC,       OVERLAYFS_SUPER_MAGIC,
};

constexpr unsigned least_round = 16;  // reads; fewer tell too little
constexpr double least_gain = 1.2;

}  // namespace

unsigned depth_of_file_system(std::uint64_t type) noexcept {
  const bool is_local =
      std::find(local_types.begin(), local_types.end(), type) != local_types.end();
  return is_local ? local_depth : network_depth;
}

unsigned depth_for(const File& file) noexcept {
  struct statfs status {};
  if (::fstatfs(file.descriptor(), &status) != 0) return local_depth;
  return depth_of_file_system(static_cast<std::uint32_t>(status.f_type));
}

void ReadDepth::ended(std::uint64_t bytes, Time when) noexcept {
  if (is_settled_) return;
  ++reads_;
  if (reads_ <= now_) {  // begun when fewer were under way
    began_ = when;
    return;
  }
  bytes_ += bytes;
  if (reads_ < now_ + std::max(now_, least_round)) return;
  const double seconds = std::chrono::duration<double>(when - began_).count();
  const double rate = static_cast<double>(bytes_) / std::max(seconds, 1e-9);
  const bool gained = rate >= least_gain * rate_before_;
  is_settled_ = !gained || now_ >= most_depth;
  if (!gained)
    now_ /= 2;
  else if (!is_settled_)
    now_ = std::min(2 * now_, most_depth);
  rate_before_ = rate;
  reads_ = 0;
  bytes_ = 0;
}

}  // namespace weightmap::os
