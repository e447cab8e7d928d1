#include "runtime/format/in_threads.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
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
      REQUIRE_OK(format::in_threads(count, [&](std::size_t number) -> Result<void> {
        if (slow) be_slow();
        ++times[number];
        return {};
      }));
      for (const std::atomic<int>& each : times) CHECK(each == 1);
    }
}

TEST_CASE("the first failure by number is told, and the others are worked on") {
  std::atomic<int> worked{0};
  const auto failed = format::in_threads(20, [&](std::size_t number) -> Result<void> {
    be_slow();
    ++worked;
    if (number % 7 == 6) return failure(ErrorCode::io, "number " + std::to_string(number));
    return {};
  });
  CHECK_FAILS(failed, ErrorCode::io, "number 6");
  CHECK(worked == 20);
}

TEST_CASE("what is thrown is thrown on, by the first as by others") {
  for (const std::size_t thrower : std::vector<std::size_t>{0, 5}) {
    const auto work = [&](std::size_t number) -> Result<void> {
      be_slow();
      if (number == thrower) throw std::runtime_error("thrown");
      return {};
    };
    CHECK_THROWS_WITH_AS((void)format::in_threads(10, work), "thrown", std::runtime_error);
  }
}

TEST_CASE("two are not worth a thread") {
  const std::thread::id here = std::this_thread::get_id();
  std::vector<std::thread::id> threads;
  REQUIRE_OK(format::in_threads(2, [&](std::size_t) -> Result<void> {
    threads.push_back(std::this_thread::get_id());
    return {};
  }));
  CHECK(threads == std::vector<std::thread::id>{here, here});
}
