#include "runtime/os/file/mount.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

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

std::vector<Overlay> overlays(const fs::path& root) {
  std::vector<Overlay> found;
  std::ifstream lines(root / "proc/self/mountinfo");
  for (std::string line; std::getline(lines, line);) {
    std::uint64_t id = 0;
    std::istringstream(line) >> id;
    const std::optional<Mount> mount = parse_line(line, id);
    if (!mount || mount->file_system != "overlay") continue;
    std::vector<std::string> upper, lower;
    std::istringstream options(line.substr(line.rfind(' ') + 1));
    for (std::string option; std::getline(options, option, ',');) {
      const std::string name = option.substr(0, option.find('='));
      std::istringstream paths(option.substr(std::min(option.size(), name.size() + 1)));
      for (std::string path; std::getline(paths, path, ':');) {
        if (name == "upperdir") upper.push_back(path);
        if (name == "lowerdir" || name == "lowerdir+") lower.push_back(path);
      }
    }
    upper.insert(upper.end(), lower.begin(), lower.end());
    const auto is_unclear = [](const std::string& path) { return path.find('\\') != path.npos; };
    found.push_back({mount->number, {upper.begin(), std::ranges::find_if(upper, is_unclear)}});
  }
  return found;
}

std::string number_of_device(std::uint64_t device) {
  return std::to_string(major(static_cast<dev_t>(device))) + ":" +
         std::to_string(minor(static_cast<dev_t>(device)));
}

std::string file_system_of(std::uint64_t device, const fs::path& root) {
  const std::string number = number_of_device(device);
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
