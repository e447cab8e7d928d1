#include "runtime/system/process/descriptor_limit.hpp"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>

namespace weightmap::os {
namespace {

// 0 without /proc.
std::size_t count_open_descriptors() noexcept {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  std::size_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

}  // namespace

bool make_room_for_descriptors(std::size_t count) noexcept {
  constexpr std::size_t few = 16;
  rlimit limit{};
  if (count < few || ::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
    return false;
  if (count + count_open_descriptors() <= limit.rlim_cur / 2) return false;
  limit.rlim_cur += std::min<rlim_t>(count, limit.rlim_max - limit.rlim_cur);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace weightmap::os
