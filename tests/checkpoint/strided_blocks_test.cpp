#include "runtime/checkpoint/strided_blocks.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <numeric>
#include <vector>

using namespace weightmap;

namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 20;

// Numbers that stand for a file, and a count of what is read of it.
struct Numbers {
  explicit Numbers(std::size_t count) : values(count) {
    std::iota(values.begin(), values.end(), 0);
  }
  TensorView view(const std::vector<std::int64_t>& dims, unsigned flags = 0) const {
    const std::size_t rank = dims.size() / 2;
    std::int64_t last = 0;
    for (std::size_t i = 0; i < rank; ++i) last += (dims[i] - 1) * dims[rank + i];
    REQUIRE(last < static_cast<std::int64_t>(values.size()));
    return {DType::int32,
            rank,
            dims.data(),
            std::as_bytes(std::span(values)).data(),
            static_cast<std::uint64_t>(last + 1) * 4,
            flags};
  }
  std::vector<std::int32_t> gather(const TensorView& view) {
    std::vector<std::int32_t> out;
    const std::uint64_t expected_reads = StridedBlocks(view).count();
    for (StridedBlocks blocks(view); !blocks.done(); blocks.advance()) {
      ++reads;
      CHECK(blocks.bytes() <= most_bytes);
      REQUIRE(blocks.offset() + blocks.bytes() <= view.stored_bytes().size());
      const TensorView part =
          blocks.view_of(view.stored_bytes().subspan(blocks.offset(), blocks.bytes()));
      out.resize(out.size() + part.numel());
      REQUIRE(part.gather(std::as_writable_bytes(std::span(out)).last(part.nbytes())));
    }
    CHECK(static_cast<std::uint64_t>(reads) == expected_reads);
    return out;
  }
  std::vector<std::int32_t> values;
  int reads = 0;
};

// What TensorView gathers of the same view, which knows no blocks.
void check_same(Numbers& numbers, const std::vector<std::int64_t>& dims, int reads,
                unsigned flags = 0) {
  const TensorView view = numbers.view(dims, flags);
  std::vector<std::int32_t> expected(view.numel());
  REQUIRE(view.gather(std::as_writable_bytes(std::span(expected))));
  numbers.reads = 0;
  CHECK(numbers.gather(view) == expected);
  CHECK(numbers.reads == reads);
}

}  // namespace

TEST_CASE("what fits a block is read at once") {
  Numbers numbers(1000);
  check_same(numbers, {}, 1);
  check_same(numbers, {3, 2, 1, 3}, 1);
  check_same(numbers, {10, 1, 10, 100, 7, 1}, 1);
  check_same(numbers, {5, 4, 0, 3}, 1);
  check_same(numbers, {2, 3, 3, 1}, 1, TensorView::foreign_order);
}

TEST_CASE("what reaches further is read by rows, by parts of a row, and one by one") {
  Numbers numbers(1'100'000);
  check_same(numbers, {1000, 500, 1000, 2}, 4);      // 262 rows at a time
  check_same(numbers, {500'000, 2}, 4);              // 131,072 elements at a time
  check_same(numbers, {2, 500'000, 1, 2}, 8);        // transposed
  check_same(numbers, {3, 400'000}, 3);              // each for itself
  check_same(numbers, {2, 3, 499'999, 200'000}, 6);  // likewise
  check_same(numbers, {3, 2, 1, 333'333, 400'000, 5}, 6);
  check_same(numbers, {600, 500, 1000, 2}, 3, TensorView::foreign_order);
}

TEST_CASE("what lies between two rows is read with them if it is little") {
  Numbers numbers(1'000'000);
  check_same(numbers, {100, 10, 4106, 1}, 2);    // gaps of 16384 bytes; 64 rows at a time
  check_same(numbers, {100, 10, 4107, 1}, 100);  // of 16388
}

TEST_CASE("the stride of a single element counts for nothing") {
  Numbers numbers(64);
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::int64_t> dims{1, 8, huge, 2};
  CHECK(numbers.gather(numbers.view(dims)).back() == 14);
  CHECK(numbers.reads == 1);
}
