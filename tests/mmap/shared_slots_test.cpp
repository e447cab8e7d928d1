// Slots of memory that processes share by a name.
#include "mmap/memory/shared_slots.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/failures.hpp"

using weightmap::ErrorCode;
using weightmap::Result;
using weightmap::os::SharedSlots;

namespace {

struct Name {
  std::string name = "weightmap-slots-test-" + std::to_string(::getpid());
  std::filesystem::path path = "/dev/shm/" + name;

  ~Name() { std::filesystem::remove(path); }
  SharedSlots opened(std::size_t slots = 3) const {
    Result<SharedSlots> made = SharedSlots::open(name, slots, 4096);
    REQUIRE_OK(made);
    return std::move(*made);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Name,
                  "who opens slots of one name has the same memory, and the last removes it") {
  {
    const SharedSlots one = opened();
    CHECK(one.bytes().size() == 12288);
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0600);
    CHECK(status.st_blocks * 512 >= 12288);  // all of the memory is there
    {
      const SharedSlots other = opened();
      CHECK(one.bytes().data() != other.bytes().data());
      std::memset(one.bytes().data() + 4096, 7, 4096);
      CHECK(other.bytes()[4096] == std::byte{7});
      CHECK(other.bytes()[8191] == std::byte{7});
      CHECK(other.bytes()[8192] == std::byte{0});
    }
    CHECK(std::filesystem::exists(path));
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE_FIXTURE(Name, "one at a time has a slot") {
  const SharedSlots one = opened();
  std::optional<SharedSlots> other(opened());
  CHECK(one.try_lock(1));
  CHECK_FALSE(other->try_lock(1));
  CHECK(other->try_lock(0));
  CHECK_FALSE(one.try_lock(0));
  one.unlock(1);
  CHECK(other->try_lock(1));
  other.reset();
  CHECK(one.try_lock(0));
  CHECK(one.try_lock(1));
}

TEST_CASE_FIXTURE(Name, "what a killed process had is free") {
  const SharedSlots one = opened();
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<SharedSlots> own = SharedSlots::open(name, 3, 4096);
    const char answer = own && own->try_lock(2) ? 'y' : 'n';
    static_cast<void>(!::write(ready[1], &answer, 1));
    for (;;) ::pause();
  }
  char answer = 0;
  REQUIRE(::read(ready[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  CHECK_FALSE(one.try_lock(2));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(one.try_lock(2));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE_FIXTURE(Name, "a forked child gives up nothing of its parent's") {
  std::optional<SharedSlots> one(opened());
  CHECK(one->try_lock(0));
  const pid_t child = ::fork();
  if (child == 0) {
    one.reset();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  CHECK(std::filesystem::exists(path));
  const SharedSlots other = opened();
  CHECK_FALSE(other.try_lock(0));
  CHECK_FAILS(SharedSlots::open(name, 4, 4096), ErrorCode::invalid_argument, "is in use");
}

TEST_CASE_FIXTURE(Name, "what was left is taken over, whatever its size") {
  std::ofstream(path) << "left";
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  const SharedSlots one = opened();
  CHECK(one.bytes().size() == 12288);
  CHECK(one.bytes()[0] == std::byte{0});
}

TEST_CASE_FIXTURE(Name, "slots in use are of one size") {
  const SharedSlots one = opened(3);
  CHECK_FAILS(SharedSlots::open(name, 4, 4096), ErrorCode::invalid_argument,
              "has 12288 bytes of slots, not 16384, and is in use");
  CHECK(std::filesystem::file_size(path) == 12288);
}

TEST_CASE_FIXTURE(Name, "what is no file of slots is left alone") {
  CHECK_FAILS(SharedSlots::open("..", 3, 4096), ErrorCode::invalid_argument,
              "is no name for shared memory");
  CHECK_FAILS(SharedSlots::open(name, 3, 0), ErrorCode::invalid_argument, "have no size");
  CHECK_FAILS(SharedSlots::open(name, std::size_t{1} << 60, std::uint64_t{1} << 60),
              ErrorCode::invalid_argument, "or too large a one");
  std::filesystem::create_symlink("/dev/shm/" + name + "-target", path);
  CHECK_FAILS(SharedSlots::open(name, 3, 4096), ErrorCode::io, "open \"/dev/shm/");
  CHECK(std::filesystem::is_symlink(path));
  std::filesystem::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_FAILS(SharedSlots::open(name, 3, 4096), ErrorCode::invalid_argument,
              "is no regular file of this user");
  CHECK(std::filesystem::exists(path));
}

TEST_CASE_FIXTURE(Name, "many who come and go at once always meet in one file") {
  std::vector<std::thread> threads;
  std::vector<int> faults(4, 0);
  for (int& fault : faults)
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        const Result<SharedSlots> slots = SharedSlots::open(name, 2, 4096);
        if (!slots) {
          ++fault;
          continue;
        }
        if (!slots->try_lock(0)) continue;
        // Nobody else is at it, or the slot was not one and the same.
        std::byte& counter = slots->bytes()[0];
        counter = std::byte{1};
        std::this_thread::yield();
        if (std::exchange(counter, std::byte{0}) != std::byte{1}) ++fault;
        slots->unlock(0);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(faults == std::vector<int>(4, 0));
  CHECK_FALSE(std::filesystem::exists(path));
}
