#include "runtime/os/file/mount.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <fstream>
#include <sstream>

namespace weightmap::os {
namespace {

namespace fs = std::filesystem;

// Parses "36 35 98:0 /subtree /mnt rw shared:1 - ext3 /dev/root rw"; a dash ends optional fields.
std::optional<Mount> parse_line(const std::string& line, std::uint64_t wanted) {
  std::istringstream words(line);
  std::uint64_t id = 0;
  std::string word;
  Mount mount;
  if (!(words >> id >> word >> mount.number) || id != wanted) return std::nullopt;
  while (words >> word && word != "-") {
  }
  if (!(words >> mount.file_system >> mount.device)) return std::nullopt;
  return mount;
}

}  // namespace

std::optional<Mount> mount_of(const File& file) {
  struct statx facts {};
  if (::statx(file.descriptor(), "", AT_EMPTY_PATH, STATX_MNT_ID, &facts) != 0 ||
      (facts.stx_mask & STATX_MNT_ID) == 0)
    return std::nullopt;
  return find_mount(facts.stx_mnt_id);
}

std::optional<Mount> find_mount(std::uint64_t id, const fs::path& root) {
  std::ifstream lines(root / "proc/self/mountinfo");
  for (std::string line; std::getline(lines, line);)
    if (std::optional<Mount> mount = parse_line(line, id)) return mount;
  return std::nullopt;
}

std::string file_system_of(std::uint64_t device, const fs::path& root) {
  const std::string number = std::to_string(major(static_cast<dev_t>(device))) + ":" +
                             std::to_string(minor(static_cast<dev_t>(device)));
  std::ifstream lines(root / "proc/self/mountinfo");
  for (std::string line; std::getline(lines, line);) {
    std::uint64_t id = 0;
    std::istringstream(line) >> id;
    const std::optional<Mount> mount = parse_line(line, id);
    if (mount && mount->number == number) return mount->file_system;
  }
  return {};
}

bool open_may_drop_cache(const fs::path& path) noexcept {
  struct statfs status {};
  return ::statfs(path.c_str(), &status) == 0 && status.f_type == FUSE_SUPER_MAGIC;
}

bool is_overlay(const File& file) noexcept {
  struct statfs status {};
  return ::fstatfs(file.descriptor(), &status) == 0 && status.f_type == OVERLAYFS_SUPER_MAGIC;
}

// A disk has the first, a partition's disk is the folder above, and a file system without a disk of
// its own (NFS, FUSE) has only the last.
fs::path read_ahead_setting(const Mount& mount, const fs::path& root) {
  for (const char* folder : {"/queue", "/../queue"}) {
    const fs::path setting = root / ("sys/dev/block/" + mount.number + folder) / "read_ahead_kb";
    if (std::ifstream(setting).good()) return setting;
  }
  const fs::path setting = root / "sys/class/bdi" / mount.number / "read_ahead_kb";
  return std::ifstream(setting).good() ? setting : fs::path();
}

}  // namespace weightmap::os
