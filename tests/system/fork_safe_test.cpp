// Locks across forks: what the other threads of the parent held does not exist in the child.
#include "runtime/system/process/fork_safe.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/system/file/name_lock.hpp"
#include "tests/mmap/bus_child.hpp"
#include "tests/support/temporary_file.hpp"

namespace weightmap::os {
namespace {

template <class Function>
bool holds_in_child(const Function& function) {
  return test::in_child([&] { return function() ? 0 : 1; }) == "exit 0";
}

// Holds a mutex in a thread of its own while it lives.
class Holder {
 public:
  explicit Holder(ForkSafeMutex& mutex)
      : thread_([this, &mutex] {
          const ForkSafeMutex::Lock lock(mutex);
          held_ = true;
          held_.notify_one();
          done_.wait(false);
        }) {
    held_.wait(false);
  }
  ~Holder() {
    done_ = true;
    done_.notify_one();
    thread_.join();
  }

 private:
  std::atomic<bool> held_{false};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

bool is_abandoned(ForkSafeMutex& mutex) { return ForkSafeMutex::Lock(mutex).was_abandoned(); }

struct Pair {
  std::unique_ptr<int> first;
  std::unique_ptr<int> second;
};

TEST_CASE("counts the forks that lead to a process") {
  const ForkSafeMutex counts;
  const std::uint32_t before = fork_count();
  CHECK(holds_in_child([before] { return fork_count() == before + 1; }));
  CHECK(fork_count() == before);
}

TEST_CASE("keeps threads apart") {
  ForkSafeMutex mutex;
  std::uint64_t sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 20'000; ++round) {
        const ForkSafeMutex::Lock lock(mutex);
        ++sum;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(sum == 80'000);
}

TEST_CASE("a mutex that nobody held is as it was in the child") {
  ForkSafeMutex mutex;
  { const ForkSafeMutex::Lock lock(mutex); }
  CHECK(holds_in_child([&] { return !is_abandoned(mutex); }));
}

TEST_CASE("a mutex that a thread of the parent held is free in the child, which is told so once") {
  ForkSafeMutex mutex;
  {
    const Holder holder(mutex);
    CHECK(holds_in_child([&] {
      const bool at_first = is_abandoned(mutex);
      return at_first && !is_abandoned(mutex);
    }));
  }
  CHECK(!is_abandoned(mutex));
}

TEST_CASE("a value that a thread of the parent was changing is new in the child") {
  ForkSafe<Pair> value;
  value.with([](Pair& pair) { pair.first = std::make_unique<int>(1); });
  CHECK(holds_in_child([&] { return value.with([](Pair& pair) { return *pair.first == 1; }); }));
  std::atomic<bool> changing{false};
  std::atomic<bool> done{false};
  std::thread changer([&] {
    value.with([&](Pair& pair) {
      changing = true;
      changing.notify_one();
      done.wait(false);
      pair.second = std::make_unique<int>(2);
    });
  });
  changing.wait(false);
  CHECK(holds_in_child([&] { return value.with([](Pair& pair) { return !pair.first; }); }));
  done = true;
  done.notify_one();
  changer.join();
  CHECK(value.with([](Pair& pair) { return *pair.first + *pair.second; }) == 3);
}

TEST_CASE("forks while threads lock and unlock leave parent and child working") {
  ForkSafe<std::vector<int>> value;
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (!done) value.with([](std::vector<int>& numbers) { numbers.assign(1000, 7); });
    });
  for (int round = 0; round < 300; ++round)
    REQUIRE(holds_in_child([&] {
      return value.with([](std::vector<int>& numbers) {
        const bool is_whole = numbers.empty() || (numbers.size() == 1000 && numbers.back() == 7);
        numbers.assign(10, 1);
        return is_whole;
      });
    }));
  done = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("a lock on a name ends with its process, though a child of it lives") {
  const test::TemporaryFolder folder;
  const std::filesystem::path name = folder.path() / "name";
  int until[2], begun[2];
  REQUIRE(::pipe(until) == 0);
  REQUIRE(::pipe(begun) == 0);
  char byte = 0;
  const pid_t holder = ::fork();
  REQUIRE(holder >= 0);
  if (holder == 0) {
    const auto lock = NameLock::take(name);
    if (::fork() == 0) {
      ::close(until[1]);
      if (::write(begun[1], &byte, 1) != 1) ::_exit(1);
      ::_exit(::read(until[0], &byte, 1) == 0 ? 0 : 1);  // until this test ends
    }
    if (::read(begun[0], &byte, 1) != 1) ::_exit(1);
    ::_exit(lock && lock->has_value() && !NameLock::take(name)->has_value() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(holder, &status, 0) == holder);
  CHECK(status == 0);
  const auto lock = NameLock::take(name);
  REQUIRE(lock.has_value());
  CHECK(lock->has_value());
  for (const int end : {until[0], until[1], begun[0], begun[1]}) ::close(end);
}

}  // namespace
}  // namespace weightmap::os
