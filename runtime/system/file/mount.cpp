#include "runtime/system/file/mount.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace weightmap::os {
namespace {

namespace fs = std::filesystem;

bool is_octal(std::string_view digits) {
  return digits.size() == 3 && digits.find_first_not_of("01234567") == std::string_view::npos;
}

// The kernel writes a space as "\040".
std::string without_escapes(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '\\' && is_octal(text.substr(i + 1, 3));
    plain += is_escape
                 ? static_cast<char>(std::stoi(std::string(text.substr(i + 1, 3)), nullptr, 8))
                 : text[i];
    if (is_escape) i += 3;
  }
  return plain;
}

// Parses "36 35 98:0 /subtree /mnt rw shared:1 - ext3 /dev/root rw"; a dash ends optional fields.
std::optional<Mount> parse_line(const std::string& line) {
  std::istringstream words(line);
  std::string word, root;
  Mount mount;
  if (!(words >> mount.id >> word >> mount.number >> root >> mount.place)) return std::nullopt;
  while (words >> word && word != "-") {
  }
  if (!(words >> mount.file_system >> mount.device)) return std::nullopt;
  while (words >> mount.options) {
  }
  mount.place = without_escapes(mount.place);
  return mount;
}

std::vector<Mount> mounts(const fs::path& root) {
  return read_mounts(root / "proc/self/mountinfo");
}

bool is_fuse(const std::string& name) {
  return name == "fuse" || name == "fuseblk" || name == "virtiofs" || name.starts_with("fuse.");
}

std::optional<std::uint64_t> mount_id(int folder, const char* path, int flags) {
  struct statx facts {};
  if (::statx(folder, path, flags, STATX_MNT_ID, &facts) != 0 ||
      (facts.stx_mask & STATX_MNT_ID) == 0)
    return std::nullopt;
  return facts.stx_mnt_id;
}

Overlay overlay_of(const Mount& mount) {
  std::vector<std::string> upper, lower;
  std::istringstream options(mount.options);
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
  return {mount.number, {upper.begin(), std::ranges::find_if(upper, is_unclear)}};
}

// Of the last mount that is nearest above the path.
std::string file_system_at(const fs::path& path, const std::vector<Mount>& all) {
  const Mount* nearest = nullptr;
  for (const Mount& mount : all) {
    const fs::path below = path.lexically_relative(mount.place);
    if (below.empty() || *below.begin() == "..") continue;
    if (nearest == nullptr || mount.place.size() >= nearest->place.size()) nearest = &mount;
  }
  return nearest == nullptr ? std::string() : nearest->file_system;
}

}  // namespace

bool is_remote(std::string_view file_system) noexcept {
  constexpr std::array<std::string_view, 14> remote = {
      "nfs", "nfs4",   "cifs",     "smb3", "ceph",     "lustre", "gpfs",
      "afs", "beegfs", "orangefs", "9p",   "virtiofs", "pvfs2",  "ncpfs"};
  return file_system == "fuse" || file_system == "fuseblk" || file_system.starts_with("fuse.") ||
         std::find(remote.begin(), remote.end(), file_system) != remote.end();
}

std::optional<Mount> mount_of(const File& file) {
  const auto id = mount_id(file.descriptor(), "", AT_EMPTY_PATH);
  return id ? find_mount(*id) : std::nullopt;
}

std::optional<Mount> mount_of(const fs::path& path) {
  const auto id = mount_id(AT_FDCWD, path.c_str(), 0);
  return id ? find_mount(*id) : std::nullopt;
}

std::vector<Mount> read_mounts(const fs::path& table) {
  std::vector<Mount> mounts;
  std::ifstream lines(table);
  for (std::string line; std::getline(lines, line);)
    if (std::optional<Mount> mount = parse_line(line)) mounts.push_back(*std::move(mount));
  return mounts;
}

std::optional<Mount> find_mount(std::uint64_t id, const fs::path& root) {
  for (Mount& mount : mounts(root))
    if (mount.id == id) return std::move(mount);
  return std::nullopt;
}

std::vector<Overlay> overlays(const fs::path& root) {
  std::vector<Overlay> found;
  for (const Mount& mount : mounts(root))
    if (mount.file_system == "overlay") found.push_back(overlay_of(mount));
  return found;
}

std::string number_of_device(std::uint64_t device) {
  return std::to_string(major(static_cast<dev_t>(device))) + ":" +
         std::to_string(minor(static_cast<dev_t>(device)));
}

std::optional<std::uint64_t> mapped_device_of(const fs::path& path) {
  const std::optional<Mount> mount = mount_of(path);
  unsigned first = 0, second = 0;
  if (!mount || std::sscanf(mount->number.c_str(), "%u:%u", &first, &second) != 2)
    return std::nullopt;
  return makedev(first, second);
}

std::vector<std::string> file_systems_of(const std::string& number, const fs::path& root) {
  std::vector<std::string> found;
  const std::vector<Mount> all = mounts(root);
  const auto mount = std::ranges::find(all, number, &Mount::number);
  if (mount == all.end()) return found;
  found.push_back(mount->file_system);
  if (mount->file_system == "overlay")
    for (const fs::path& layer : overlay_of(*mount).layers)
      found.push_back(file_system_at(layer, all));
  return found;
}

bool open_may_drop_cache(const fs::path& path) { return MayDropCache()(path); }

bool MayDropCache::operator()(const fs::path& path) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) return false;
  if (status.f_type != OVERLAYFS_SUPER_MAGIC) return status.f_type == FUSE_SUPER_MAGIC;
  const auto id = mount_id(AT_FDCWD, path.c_str(), 0);
  if (!id) return false;
  const auto [known, is_new] = known_.try_emplace(*id, false);
  if (!is_new) return known->second;
  if (const std::optional<Mount> mount = find_mount(*id))
    known->second = std::ranges::any_of(file_systems_of(mount->number), is_fuse);
  return known->second;
}

std::optional<fs::path> file_below(const fs::path& path) {
  std::error_code failed;
  const std::optional<Mount> mount = mount_of(path);
  const fs::path whole = fs::canonical(path, failed);
  if (failed || !mount || mount->file_system != "overlay") return std::nullopt;
  for (const fs::path& layer : overlay_of(*mount).layers) {
    fs::path file = layer / whole.lexically_relative(mount->place);
    if (layer.is_absolute() && fs::exists(file, failed)) return file;
  }
  return std::nullopt;
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
