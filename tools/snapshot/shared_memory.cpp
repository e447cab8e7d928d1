#include "tools/snapshot/shared_memory.hpp"

#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace weightmap::cli::snapshot {
namespace {

constexpr const char* shared_folder = "/dev/shm";
// tar keeps holes and hard links: criu adds a link to a file that is open and has lost its name.
constexpr const char* saving_program =
    "#!/bin/sh\n"
    "[ \"$CRTOOLS_SCRIPT_ACTION\" = post-dump ] || exit 0\n"
    "exec tar --create --sparse --file=\"$WEIGHTMAP_SHARED_MEMORY\" --directory=/dev/shm .\n";

}  // namespace

Result<void> mount_shared_memory() {
  if (::mount("weightmap", shared_folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") == 0)
    return {};
  return failure(ErrorCode::io,
                 std::string("no memory can be mounted on /dev/shm: ") + std::strerror(errno));
}

Result<std::filesystem::path> write_saving_script(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "save-shared-memory";
  std::ofstream(path) << saving_program;
  if (::chmod(path.c_str(), 0700) != 0) return failure(ErrorCode::io, std::strerror(errno));
  return path;
}

std::filesystem::path archive_in(const std::filesystem::path& image) {
  return image / "shared-memory.tar";
}

std::vector<std::string> unpacking_words(const std::filesystem::path& image) {
  return {"tar",
          "--extract",
          "--sparse",
          "--preserve-permissions",
          "--file=" + archive_in(image).native(),
          std::string("--directory=") + shared_folder};
}

}  // namespace weightmap::cli::snapshot
