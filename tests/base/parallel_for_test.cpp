#include "runtime/base/parallel_for.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/failures.hpp"

using namespace weightmap;

namespace {

// Long enough that threads are worth it.
void be_slow() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

}  // namespace

TEST_CASE("each is worked on once, whether it is slow or not") {
  for (const bool slow : {false, true})
    for (const std::size_t count : std::vector<std::size_t>{0, 1, 2, 3, 50}) {
      std::vector<std::atomic<int>> times(count);
      REQUIRE_OK(parallel_for(count, [&](std::size_t number) -> Result<void> {
        if (slow) be_slow();
        ++times[number];
        return {};
      }));
      for (const std::atomic<int>& each : times) CHECK(each == 1);
    }
}

TEST_CASE("the first failure by number is told, and nothing is begun after one") {
  for (const std::size_t threads : std::vector<std::size_t>{1, 4}) {
    std::atomic<int> worked{0};
    const auto failed = parallel_for(20, threads, [&](std::size_t number) -> Result<void> {
      be_slow();
      ++worked;
      if (number % 7 == 6) return failure(ErrorCode::io, "number " + std::to_string(number));
      return {};
    });
    CHECK_FAILS(failed, ErrorCode::io, "number 6");
    if (threads == 1) CHECK(worked == 7);
  }
}

TEST_CASE("what is thrown is thrown on, by the first as by others") {
  for (const std::size_t thrower : std::vector<std::size_t>{0, 5}) {
    const auto work = [&](std::size_t number) -> Result<void> {
      be_slow();
      if (number == thrower) throw std::runtime_error("thrown");
      return {};
    };
    CHECK_THROWS_WITH_AS((void)parallel_for(10, work), "thrown", std::runtime_error);
  }
}

TEST_CASE("what is quickly done is not worth a thread") {
  const std::thread::id here = std::this_thread::get_id();
  std::vector<std::thread::id> threads;
  REQUIRE_OK(parallel_for(2, [&](std::size_t) -> Result<void> {
    threads.push_back(std::this_thread::get_id());
    return {};
  }));
  CHECK(threads == std::vector<std::thread::id>{here, here});
}

TEST_CASE("as many threads as were asked for work at a time, the caller's among them") {
  for (const std::size_t threads : std::vector<std::size_t>{0, 1, 3, 1000}) {
    const std::size_t together = std::clamp<std::size_t>(threads, 1, 4);
    std::barrier all(static_cast<std::ptrdiff_t>(together));
    std::mutex mutex;
    std::set<std::thread::id> seen;
    REQUIRE_OK(
        parallel_for(together == 1 ? 4 : together, threads, [&](std::size_t) -> Result<void> {
          all.arrive_and_wait();
          const std::scoped_lock lock(mutex);
          seen.insert(std::this_thread::get_id());
          return {};
        }));
    CHECK(seen.size() == together);
    CHECK(seen.count(std::this_thread::get_id()) == 1);
  }
}
