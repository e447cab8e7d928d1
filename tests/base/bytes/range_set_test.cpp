#include "runtime/base/bytes/range_set.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace weightmap::bytes {
namespace {

using Ranges = std::vector<ByteRange>;

TEST_CASE("ranges that touch or overlap become one") {
  RangeSet set;
  set.add({10, 10});
  set.add({30, 10});
  CHECK(set.ranges() == Ranges{{10, 10}, {30, 10}});
  set.add({20, 5});
  CHECK(set.ranges() == Ranges{{10, 15}, {30, 10}});
  set.add({5, 100});
  CHECK(set.ranges() == Ranges{{5, 100}});
  set.add({6, 1});
  CHECK(set.ranges() == Ranges{{5, 100}});
}

TEST_CASE("an empty range adds nothing and is in every set") {
  RangeSet set;
  set.add({7, 0});
  CHECK(set.ranges().empty());
  CHECK(set.contains({7, 0}));
  CHECK_FALSE(set.contains({7, 1}));
}

TEST_CASE("what is removed cuts ranges, or ends them") {
  RangeSet set;
  set.add({10, 10});
  set.add({30, 10});
  set.remove({12, 3});
  CHECK(set.ranges() == Ranges{{10, 2}, {15, 5}, {30, 10}});
  set.remove({15, 20});
  CHECK(set.ranges() == Ranges{{10, 2}, {35, 5}});
  set.remove({0, 0});
  set.remove({12, 20});
  CHECK(set.ranges() == Ranges{{10, 2}, {35, 5}});
  set.remove({0, 100});
  CHECK(set.ranges().empty());
}

TEST_CASE("what is missing are the gaps, cut to the range") {
  RangeSet set;
  set.add({10, 10});
  set.add({30, 10});
  CHECK(set.missing({0, 50}) == Ranges{{0, 10}, {20, 10}, {40, 10}});
  CHECK(set.missing({15, 20}) == Ranges{{20, 10}});
  CHECK(set.missing({10, 10}).empty());
  CHECK(set.missing({12, 3}).empty());
  CHECK(set.missing({22, 3}) == Ranges{{22, 3}});
  CHECK(set.missing({40, 5}) == Ranges{{40, 5}});
  CHECK(set.missing({9, 1}) == Ranges{{9, 1}});
}

TEST_CASE("the first range counts only where the file begins") {
  RangeSet set;
  CHECK(set.end_of_first() == 0);
  set.add({1, 5});
  CHECK(set.end_of_first() == 0);
  set.add({0, 1});
  CHECK(set.end_of_first() == 6);
}

}  // namespace

TEST_CASE("intersects what has a byte in common") {
  RangeSet set;
  set.add({10, 5});
  set.add({20, 5});
  CHECK(set.intersects({14, 1}));
  CHECK(set.intersects({0, 11}));
  CHECK(set.intersects({0, 100}));
  CHECK(set.intersects({16, 5}));
  CHECK(!set.intersects({15, 5}));
  CHECK(!set.intersects({0, 10}));
  CHECK(!set.intersects({25, 5}));
  CHECK(!set.intersects({12, 0}));
  CHECK(!RangeSet().intersects({0, 100}));
}

}  // namespace weightmap::bytes
