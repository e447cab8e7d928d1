#include "tools/run/opened_files.hpp"

#include <fcntl.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "tools/run/dropped_pages.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::start {
namespace {

constexpr std::array<std::string_view, 22> made_up = {
    "autofs",     "binfmt_misc", "bpf",      "cgroup",  "cgroup2",   "configfs",
    "debugfs",    "devpts",      "efivarfs", "fusectl", "hugetlbfs", "mqueue",
    "nfsd",       "nsfs",        "proc",     "pstore",  "resctrl",   "rpc_pipefs",
    "securityfs", "selinuxfs",   "sysfs",    "tracefs"};

std::string path_of(int descriptor) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  return length < 0 ? std::string() : std::string(path.data(), static_cast<std::size_t>(length));
}

}  // namespace

std::vector<os::Mount> mounts_with_files(pid_t process) {
  std::vector<os::Mount> mounts =
      os::read_mounts("/proc/" + std::to_string(process) + "/mountinfo");
  std::erase_if(mounts, [](const os::Mount& mount) {
    return std::ranges::find(made_up, mount.file_system) != made_up.end();
  });
  return mounts;
}

std::vector<std::string> likely_places(const std::vector<std::string>& others) {
  std::error_code removed;
  std::vector<std::string> places = {"/", std::filesystem::current_path(removed).native(), "/usr",
                                     "/home", "/opt"};
  places.insert(places.end(), others.begin(), others.end());
  return places;
}

OpenedFiles::OpenedFiles()
    : watch_(::fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_UNLIMITED_QUEUE,
                             O_RDONLY | O_LARGEFILE | O_CLOEXEC)) {}

OpenedFiles::OpenedFiles(const std::vector<std::string>& paths) : OpenedFiles() {
  bool watches_any = false;
  // The system opens for us what others open, which drops the pages of some file systems.
  for (const std::string& path : paths)
    watches_any = (!drops_pages_at_open(path) && watch(path)) || watches_any;
  if (!watches_any) watch_ = Descriptor();
}

bool OpenedFiles::watch(const std::string& path) {
  if (watch_.get() < 0) return false;
  for (const unsigned kind : {unsigned{FAN_MARK_FILESYSTEM}, unsigned{FAN_MARK_MOUNT}})
    if (::fanotify_mark(watch_.get(), FAN_MARK_ADD | kind, FAN_OPEN | FAN_CLOSE_WRITE, AT_FDCWD,
                        path.c_str()) == 0)
      return true;
  return false;
}

OpenedFiles OpenedFiles::of_namespace(pid_t process) {
  OpenedFiles files;
  const std::string root = "/proc/" + std::to_string(process) + "/root";
  for (const os::Mount& mount : mounts_with_files(process)) {
    files.mounts_.insert(mount.id);
    files.devices_.insert(mount.number);
    if (files.trouble_.empty() && !files.watch(root + mount.place))
      files.trouble_ = "the system does not tell which files of " + printable(mount.place) + " (" +
                       printable(mount.file_system) +
                       ") the command opens: fanotify: " + std::strerror(errno);
  }
  if (files.mounts_.empty()) files.trouble_ = "the system does not tell what is mounted";
  return files;
}

std::string OpenedFiles::unseen(const std::set<pid_t>& processes) const {
  if (!trouble_.empty()) return trouble_;
  for (const pid_t process : processes)
    for (const os::Mount& mount : mounts_with_files(process))
      if (!devices_.contains(mount.number))
        return printable(mount.place) +
               " was mounted while the command started, and nothing told which of its files it "
               "opens";
  return {};
}

void OpenedFiles::take(const std::function<void(const FileEvent&)>& note) {
  alignas(fanotify_event_metadata) std::array<std::byte, 16384> buffer;
  for (;;) {
    ssize_t left = ::read(watch_.get(), buffer.data(), buffer.size());
    if (left < 0 && errno != EAGAIN && errno != EINTR && errno != EBADF) {
      // Of a file that this process may not open: its event is lost, and others follow.
      if (trouble_.empty())
        trouble_ = std::string("the system does not tell which file was opened: fanotify: ") +
                   std::strerror(errno);
      continue;
    }
    if (left <= 0) return;
    const auto* event = reinterpret_cast<const fanotify_event_metadata*>(buffer.data());
    for (; FAN_EVENT_OK(event, left); event = FAN_EVENT_NEXT(event, left)) {
      const Descriptor file(event->fd);
      if (event->fd < 0) {  // FAN_Q_OVERFLOW, which has no file
        if (trouble_.empty())
          trouble_ =
              "the system lost some of what it tells about opened files: fanotify: its queue "
              "overflowed";
        continue;
      }
      struct statx status {};
      ::statx(event->fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_MNT_ID, &status);
      note({event->pid,
            path_of(event->fd),
            (event->mask & FAN_OPEN) != 0,
            (event->mask & FAN_CLOSE_WRITE) != 0,
            S_ISREG(status.stx_mode),
            mounts_.contains(status.stx_mnt_id),
            {::makedev(status.stx_dev_major, status.stx_dev_minor), status.stx_ino}});
    }
  }
}

}  // namespace weightmap::cli::start
