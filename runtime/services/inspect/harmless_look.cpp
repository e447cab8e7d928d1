#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "mmap/pages/file_window.hpp"
#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/files_of.hpp"
#include "runtime/services/inspect/processes.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/file/mount.hpp"
#include "weightmap/checkpoint_info.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;

// Asks the server by a file beside this one that no process has mapped; not through an overlay,
// whose files can be mapped at several places.
bool keeps_cache(const fs::path& file) {
  if (os::file_below(file)) return false;
  std::error_code stop;
  const fs::path folder = fs::absolute(file, stop).parent_path();
  const Result<ProcessesReport> report = processes({folder});
  if (!report) return false;
  for (fs::directory_iterator entry(folder, stop), end; !stop && entry != end;
       entry.increment(stop)) {
    const Result<Generation> beside = generation_at(entry->path());
    if (!beside || beside->size == 0 || !os::open_may_drop_cache(entry->path())) continue;
    const auto is_it = [&](const MappedCheckpoint& mapped) {
      return mapped.device == beside->device && mapped.inode == beside->inode;
    };
    if (std::error_code unknown;
        !fs::is_regular_file(entry->path(), unknown) || std::ranges::any_of(report->mapped, is_it))
      continue;
    const Result<os::File> other = os::File::open(entry->path(), false);
    return other && !mmap::drops_pages_at_open(*other);
  }
  return false;
}

}  // namespace

Result<void> check_look_is_harmless(const fs::path& path) {
  const std::vector<fs::path> files = unopened_files_of(path);
  if (std::none_of(files.begin(), files.end(), os::MayDropCache())) return {};
  std::vector<fs::path> asked{path};
  for (const fs::path& file : files)
    if (auto below = os::file_below(file)) asked.push_back(std::move(*below));
  TRY_ASSIGN(const ProcessesReport report, processes(asked));
  if (report.mapped.empty() || keeps_cache(files.front())) return {};
  std::set<std::int64_t> users;
  std::uint64_t resident = 0;
  for (const MappedCheckpoint& mapped : report.mapped) {
    users.insert(mapped.process);
    resident += mapped.pss_bytes;
  }
  return about_file(
      {ErrorCode::unsupported,
       "is on FUSE, where an open may drop the " + bytes::counted(resident, "byte") +
           " that process " + std::to_string(*users.begin()) +
           (users.size() > 1 ? " and " + bytes::counted(users.size() - 1, "other") + " have"
                             : " has") +
           " mapped and in memory, so nothing is opened; `weightmap ps` tells more without an "
           "open, and a copy that is not on FUSE can be looked at",
       Error::no_offset,
       {}},
      path);
}

}  // namespace weightmap
