// What the system tells of opened files, as a queue that this test writes.
#include "tools/run/opened_files.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/fanotify.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

using weightmap::cli::start::FileEvent;
using weightmap::cli::start::OpenedFiles;

namespace {

int queue_end = -1;  // where the events are written that OpenedFiles reads

void queue_event(std::uint64_t mask, int file) {
  fanotify_event_metadata event{};
  event.event_len = event.metadata_len = sizeof event;
  event.vers = FANOTIFY_METADATA_VERSION;
  event.mask = mask;
  event.fd = file;
  event.pid = ::getpid();
  REQUIRE(::write(queue_end, &event, sizeof event) == sizeof event);
}

}  // namespace

// In place of the system's, whose queue overflows only when memory is used up.
extern "C" int fanotify_init(unsigned, unsigned) noexcept {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return -1;
  queue_end = ends[1];
  return ends[0];
}
extern "C" int fanotify_mark(int, unsigned, std::uint64_t, int, const char*) noexcept { return 0; }

TEST_CASE("an event that was lost is told of, and those around it are taken") {
  OpenedFiles files = OpenedFiles::of_namespace(::getpid());
  std::vector<std::string> opened;
  const auto note = [&](const FileEvent& event) { opened.push_back(event.path); };
  queue_event(FAN_OPEN, ::open("/etc/passwd", O_RDONLY | O_CLOEXEC));
  files.take(note);
  CHECK(files.unseen({}) == "");
  queue_event(FAN_Q_OVERFLOW, FAN_NOFD);
  queue_event(FAN_OPEN, ::open("/etc/group", O_RDONLY | O_CLOEXEC));
  files.take(note);
  CHECK(opened == std::vector<std::string>{"/etc/passwd", "/etc/group"});
  const std::string lost =
      "the system lost some of what it tells about opened files: fanotify: its queue overflowed";
  CHECK(files.unseen({}) == lost);
  CHECK(files.unseen({::getpid()}) == lost);
  ::close(queue_end);
}

TEST_CASE("mounts that the kernel makes up are left out") {
  CHECK(weightmap::cli::start::mounts_with_files(-1).empty());
  for (const weightmap::os::Mount& mount : weightmap::cli::start::mounts_with_files(::getpid()))
    CHECK(mount.file_system != "proc");
}
