// Which units the policies let go.
#include <doctest/doctest.h>

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "bench/played_policy.hpp"
#include "weightmap/on_demand.hpp"

using namespace weightmap;

namespace {

// Calls of a unit each, a to z. Returns what each of them did: "+" it was there, "-" it came, or
// the unit that went for it.
std::string played(std::string_view policy, std::size_t room, std::string_view calls) {
  PlayedPolicy playing(eviction_policy(policy), 26, room);
  std::string done;
  for (const char name : calls) {
    const std::size_t unit = static_cast<std::size_t>(name - 'a');
    const PlayedPolicy::Call call = playing.acquire(std::span(&unit, 1));
    done += call.missing.empty() ? '+'
            : call.gone.empty()  ? '-'
                                 : static_cast<char>('a' + call.gone[0]);
  }
  return done;
}

}  // namespace

TEST_CASE("Policies are found by their names") {
  for (const std::string_view name : {"lru", "lfu", "sieve", "s3fifo"}) {
    CAPTURE(name);
    REQUIRE(eviction_policy(name) != nullptr);
    CHECK(eviction_policy(name)->name() == name);
  }
  CHECK(eviction_policy("fifo") == nullptr);
  CHECK(eviction_policy("LRU") == nullptr);
  CHECK(eviction_policy("") == nullptr);
}

TEST_CASE("lru: what was not used for the longest time goes") {
  CHECK(played("lru", 3, "abcadaeb") == "---+b+cd");
  CHECK(played("lru", 1, "aabba") == "-+a+b");
}

TEST_CASE("lru: what was prefetched lately stays") {
  UnitHistory used{.last_used = 7, .entered = 3, .uses = 2};
  UnitHistory prefetched{.entered = 8};
  UnitHistory forgotten{.last_used = 1, .entered = 6, .uses = 1};
  const std::array units{&used, &prefetched, &forgotten};
  CHECK(eviction_policy("lru")->choose(units, 9) == 2);
}

TEST_CASE("lfu: what was used least goes, of these what was not used for longer") {
  CHECK(played("lfu", 3, "aaabbcdcbe") == "-++-+-cd+c");
  CHECK(played("lfu", 2, "abcd") == "--ab");
}

TEST_CASE("lfu: uses count half after each 1,024 calls") {
  const auto lfu = eviction_policy("lfu");
  UnitHistory before, now;
  lfu->entered(before, 1);
  lfu->hit(before, 2);
  lfu->hit(before, 3);
  const std::array units{&before, &now};
  lfu->entered(now, 1024);
  CHECK(lfu->choose(units, 1024) == 1);  // 1.5 uses and 1
  lfu->hit(now, 2047);
  CHECK(lfu->choose(units, 2047) == 0);  // 1.5 and 2
  lfu->hit(before, 2048);
  CHECK(lfu->choose(units, 2048) == 1);  // 1.75 and 1
}

TEST_CASE("lfu: what was used before this unit went counts when it comes back") {
  CHECK(played("lfu", 2, "aaabbcbbbad") == "-++-+bc+++a");
}

TEST_CASE("sieve: what was used since the hand came by stays, the next one goes") {
  CHECK(played("sieve", 3, "abcadefgh") == "---+bcdef");
}

TEST_CASE("sieve: the hand goes around, and begins again with the oldest") {
  CHECK(played("sieve", 3, "abcadefghghij") == "---+bcdef++ag");
  CHECK(played("sieve", 3, "abcabcde") == "---+++ab");
}

TEST_CASE("sieve: what comes back is new") {
  CHECK(played("sieve", 2, "aabbcadb") == "-+-+abca");
  CHECK(played("sieve", 2, "abcbcdcdedeaf") == "--a++b++c++de");
}

TEST_CASE("s3fifo: what is used twice while it is new stays") {
  CHECK(played("s3fifo", 3, "abcaabbdefab") == "---++++cde++");
  CHECK(played("s3fifo", 3, "abcabde") == "---++ab");  // once is too little
}

TEST_CASE("s3fifo: what comes back soon stays, what comes back late is new") {
  CHECK(played("s3fifo", 3, "abcaabbdce") == "---++++cda");
  CHECK(played("s3fifo", 3, "abcaabbdefghijklce") == "---++++cdefghijklc");
}

TEST_CASE("s3fifo: what was used in the main queue begins anew at its end") {
  CHECK(played("s3fifo", 3, "abcaabbdcae") == "---++++cd+b");
  CHECK(played("s3fifo", 3, "abcaabbdcaeeef") == "---++++cd+b++c");
  CHECK(played("s3fifo", 3, "abcaabbdcabce") == "---++++cd+++a");
}

TEST_CASE("s3fifo: a pass over all others does not push out what is used") {
  CHECK(played("s3fifo", 3, "abcaabbdcaefghia") == "---++++cd+befgh+");
  CHECK(played("lru", 3, "abcaabbdcaefghia") == "---++++cabdcaefg");
}
