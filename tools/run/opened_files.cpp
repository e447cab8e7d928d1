#include "tools/run/opened_files.hpp"

#include <fcntl.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <system_error>

namespace weightmap::cli::start {
namespace {

std::string path_of(int descriptor) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  return length < 0 ? std::string() : std::string(path.data(), static_cast<std::size_t>(length));
}

FileNumber number_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

}  // namespace

std::vector<std::string> likely_places(const std::vector<std::string>& others) {
  std::error_code removed;
  std::vector<std::string> places = {"/", std::filesystem::current_path(removed).native(), "/usr",
                                     "/home", "/opt"};
  places.insert(places.end(), others.begin(), others.end());
  return places;
}

OpenedFiles::OpenedFiles(const std::vector<std::string>& paths)
    : watch_(::fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_UNLIMITED_QUEUE,
                             O_RDONLY | O_LARGEFILE | O_CLOEXEC)) {
  bool watches_any = false;
  for (const std::string& path : paths)
    for (const unsigned kind : {FAN_MARK_FILESYSTEM, FAN_MARK_MOUNT}) {
      if (watch_.get() < 0 ||
          ::fanotify_mark(watch_.get(), FAN_MARK_ADD | kind, FAN_OPEN | FAN_CLOSE_WRITE, AT_FDCWD,
                          path.c_str()) != 0)
        continue;
      watches_any = true;
      break;
    }
  if (!watches_any) watch_ = Descriptor();
}

void OpenedFiles::take(const std::function<void(const FileEvent&)>& note) {
  alignas(fanotify_event_metadata) std::array<std::byte, 16384> buffer;
  for (;;) {
    ssize_t left = ::read(watch_.get(), buffer.data(), buffer.size());
    if (left <= 0) return;
    const auto* event = reinterpret_cast<const fanotify_event_metadata*>(buffer.data());
    for (; FAN_EVENT_OK(event, left); event = FAN_EVENT_NEXT(event, left)) {
      const Descriptor file(event->fd);
      if (event->fd < 0) continue;
      note({event->pid, path_of(event->fd), (event->mask & FAN_OPEN) != 0,
            (event->mask & FAN_CLOSE_WRITE) != 0, number_of(event->fd)});
    }
  }
}

}  // namespace weightmap::cli::start
