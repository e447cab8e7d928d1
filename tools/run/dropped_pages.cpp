#include "tools/run/dropped_pages.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <system_error>

#include "mmap/pages/file_window.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/checkpoint_info.hpp"

namespace weightmap::cli::start {
namespace {

namespace fs = std::filesystem;

fs::path first_file_of(const fs::path& folder) {
  std::error_code error, unknown;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->is_regular_file(unknown)) return at->path();
  return {};
}

}  // namespace

bool drops_pages_at_open(const fs::path& path) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0 ||
      (status.f_type != FUSE_SUPER_MAGIC && status.f_type != OVERLAYFS_SUPER_MAGIC))
    return false;
  std::error_code error;
  const fs::path file_path = fs::is_directory(path, error) ? first_file_of(path) : path;
  const Result<Generation> there = generation_at(file_path);
  if (!there) return false;
  static std::mutex mutex;
  static std::map<std::uint64_t, bool> known;  // by device
  const std::lock_guard guard(mutex);
  if (const auto found = known.find(there->device); found != known.end()) return found->second;
  const Result<os::File> file = os::File::open_foreign(file_path);
  return known[there->device] = file && mmap::drops_pages_at_open(*file);
}

}  // namespace weightmap::cli::start
