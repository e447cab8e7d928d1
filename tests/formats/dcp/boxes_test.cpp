// Chunks of a tensor: what is proven of where they lie.
#include "runtime/formats/dcp/boxes.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tests/support/failures.hpp"

using namespace weightmap;
using dcp::BoxRef;
using dcp::Comparisons;

namespace {

using Sizes = std::vector<std::int64_t>;
using Boxes = std::vector<std::pair<Sizes, Sizes>>;  // offsets and sizes

Result<void> check(const Sizes& sizes, const Boxes& boxes, Comparisons comparisons = {}) {
  std::vector<BoxRef> all;
  for (const auto& [offsets, box_sizes] : boxes) all.push_back({offsets, box_sizes});
  return dcp::check_boxes(sizes, all, comparisons);
}

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

// One behind the other along each of two dimensions, which no order along one of them puts apart.
Boxes slabs(std::int64_t count) {
  Boxes boxes;
  for (std::int64_t i = 0; i < count; ++i) boxes.push_back({{i, 0}, {1, count}});
  for (std::int64_t i = 0; i < count; ++i) boxes.push_back({{count, i}, {count, 1}});
  return boxes;
}

}  // namespace

TEST_CASE("boxes that are a tensor") {
  CHECK(check({5, 6}, {{{0, 0}, {5, 6}}}));
  CHECK(check({5, 6}, {{{3, 0}, {2, 6}}, {{0, 0}, {3, 6}}}));
  CHECK(check({5, 6}, {{{0, 3}, {5, 3}}, {{0, 0}, {5, 3}}}));
  CHECK(check({2, 2}, {{{0, 0}, {1, 1}}, {{0, 1}, {1, 1}}, {{1, 0}, {1, 1}}, {{1, 1}, {1, 1}}}));
  CHECK(check({}, {{{}, {}}}));
  CHECK(check({0, 3}, {}));
  CHECK(check({0, 3}, {{{0, 0}, {0, 3}}, {{0, 0}, {0, 3}}}));
  CHECK(check({1, 4}, {{{0, 0}, {1, 4}}, {{1, 0}, {0, 4}}}));
  CHECK(check({most, 2}, {{{0, 0}, {most, 2}}}));
}

TEST_CASE("more elements than 64 bits count") {
  CHECK_FAILS(check({most, 3}, {}), ErrorCode::corrupt, "more elements than 64 bits count");
  CHECK(check({most, most, 0}, {}));
}

TEST_CASE("so many boxes side by side that it would take too long are a limit") {
  CHECK(check({200, 100}, slabs(100)));
  CHECK_FAILS(check({200, 100}, slabs(100), {1000}), ErrorCode::limit_exceeded,
              "has 200 chunks, so many of which lie side by side");
  Boxes rows;
  for (std::int64_t i = 0; i < 10000; ++i) rows.push_back({{i, 0}, {1, 7}});
  CHECK(check({10000, 7}, rows, {1000}));  // of which none has another beside it
}

TEST_CASE("comparisons are counted for all tensors together") {
  const Boxes two{{{0, 0}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {2, 1}}};
  std::vector<BoxRef> boxes;
  for (const auto& [offsets, sizes] : two) boxes.push_back({offsets, sizes});
  const Sizes sizes{3, 2};
  Comparisons comparisons{5};
  int done = 0;
  while (done < 100 && dcp::check_boxes(sizes, boxes, comparisons)) ++done;
  CHECK(done == 2);
}
