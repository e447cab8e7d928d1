#include "tools/hold/file_generation.hpp"

#include <sys/stat.h>

#include <cerrno>

#include "tools/hold/system_failure.hpp"

namespace weightmap::cli::hold {
namespace {

std::int64_t nanoseconds(const timespec& time) noexcept {
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Result<Generation> generation_at(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return system_failure("look at the file", errno);
  return Generation{status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
                    nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

}  // namespace weightmap::cli::hold
