// Machines on which /proc is not mounted.
#pragma once

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>

#include <string>

#include "tests/mmap/bus_child.hpp"

namespace weightmap::test {

// Runs it in a child for which an empty folder is mounted over /proc, and checks that it answers 0.
// Says so where the system lets nobody mount anything. The child does not report its assertions.
template <class Work>
void without_proc(const Work& work) {
  const std::string end = in_child([&work] {
    const bool is_alone =
        ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    const bool is_gone = is_alone &&
                         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
    return is_gone ? work() : 77;
  });
  if (end == "exit 77")
    MESSAGE("SKIPPED: the system lets nobody mount anything over /proc");
  else
    CHECK(end == "exit 0");
}

}  // namespace weightmap::test
