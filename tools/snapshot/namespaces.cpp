#include "tools/snapshot/namespaces.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include "tools/snapshot/criu.hpp"
#include "tools/support/descriptor.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

tl::unexpected<Error> refused(const std::string& what) {
  const int error = errno;
  Error refusal{ErrorCode::io, what + ": " + std::strerror(error), Error::no_offset, {}, error};
  return tl::unexpected(std::move(refusal));
}

Result<void> write_text(const char* path, const std::string& text) {
  const Descriptor file(::open(path, O_WRONLY | O_CLOEXEC));
  if (file.get() < 0 ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return refused(path);
  return {};
}

constexpr const char* shared_folder = "/dev/shm";
// tar keeps holes and hard links: criu adds a link to a file that is open and has lost its name.
constexpr const char* saving_program =
    "#!/bin/sh\n"
    "[ \"$CRTOOLS_SCRIPT_ACTION\" = post-dump ] || exit 0\n"
    "exec tar --create --sparse --file=\"$WEIGHTMAP_SHARED_MEMORY\" --directory=/dev/shm .\n";

}  // namespace

Result<pid_t> run_in_namespaces(const std::function<void()>& work) {
  const auto made =
      static_cast<pid_t>(::syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0));
  if (made < 0) return refused("no namespace of processes can be made");
  if (made > 0) return made;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  work();
  ::_exit(0);
}

Result<void> mount_own(const std::filesystem::path& meeting_point) {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return refused("mounts cannot be this process's own");
  if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
    return refused("/proc cannot be mounted");
  if (::mount("weightmap", meeting_point.c_str(), "tmpfs", MS_NOSUID | MS_NODEV,
              "mode=0700,size=4m") != 0)
    return refused("no memory can be mounted on " + printable(meeting_point.native()));
  if (::mount("weightmap", shared_folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0)
    return refused("no memory can be mounted on /dev/shm");
  return {};
}

Result<void> set_next_id(pid_t next) {
  return write_text("/proc/sys/kernel/ns_last_pid", std::to_string(next - 1));
}

Result<std::filesystem::path> write_saving_script(const std::filesystem::path& folder) {
  return write_action_script(folder / "save-shared-memory", saving_program);
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
