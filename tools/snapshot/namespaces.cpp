#include "tools/snapshot/namespaces.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

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
  return {};
}

Result<void> set_next_id(pid_t next) {
  return write_text("/proc/sys/kernel/ns_last_pid", std::to_string(next - 1));
}

}  // namespace weightmap::cli::snapshot
