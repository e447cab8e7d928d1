// Differences of two tensors, whatever their types, strides and byte order are.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tests/support/failures.hpp"
#include "weightmap/inspect.hpp"

using namespace weightmap;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// A tensor with elements of its own.
struct Tensor {
  template <class T>
  Tensor(DType type, const std::vector<T>& values, std::vector<std::int64_t> shape = {},
         std::vector<std::int64_t> strides = {}, unsigned lazy = 0)
      : dtype(type), bytes(bytes_of(values)), flags(lazy) {
    if (shape.empty()) shape = {static_cast<std::int64_t>(values.size())};
    rank = shape.size();
    dims = std::move(shape);
    if (strides.empty()) {
      strides.assign(rank, 1);
      for (std::size_t dim = rank; dim-- > 1;) strides[dim - 1] = strides[dim] * dims[dim];
    }
    dims.insert(dims.end(), strides.begin(), strides.end());
  }

  // With the bytes of each element, or half of a complex one, the other way round.
  Tensor foreign() const {
    Tensor other = *this;
    const auto unit = static_cast<std::ptrdiff_t>(swap_unit(dtype));
    for (auto at = other.bytes.begin(); at != other.bytes.end(); at += unit)
      std::reverse(at, at + unit);
    other.flags |= TensorView::foreign_order;
    return other;
  }

  TensorView view() const { return {dtype, rank, dims.data(), bytes.data(), bytes.size(), flags}; }

  DType dtype;
  std::vector<std::byte> bytes;
  unsigned flags;
  std::size_t rank = 0;
  std::vector<std::int64_t> dims;
};

TensorDifference found(const Tensor& a, const Tensor& b) {
  return difference(a.view(), b.view()).value();
}

struct Expected {
  std::uint64_t count, differing, same_value = 0, not_finite = 0;
  std::optional<Number> largest = {};
  std::vector<std::int64_t> at = {};  // where it is first
};

void check(const TensorDifference& all, const Expected& expected) {
  CHECK(all.count == expected.count);
  CHECK(all.differing == expected.differing);
  CHECK(all.same_value == expected.same_value);
  CHECK(all.not_finite == expected.not_finite);
  CHECK((all.largest == expected.largest));
  CHECK(all.at == expected.at);
}

using F32 = std::vector<float>;
using F64 = std::vector<double>;
using U8 = std::vector<std::uint8_t>;
using U16 = std::vector<std::uint16_t>;
using I32 = std::vector<std::int32_t>;
using I64 = std::vector<std::int64_t>;
using U64 = std::vector<std::uint64_t>;
using C64 = std::vector<std::complex<float>>;
using enum DType;

struct Row {
  const char* name;
  Tensor a, b;
  Expected expected;
};

std::vector<Row> rows() {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t often = std::int64_t{1} << 40;
  const float nan = std::bit_cast<float>(0x7FC00000);
  const float other_nan = std::bit_cast<float>(0xFFC00001);
  U8 one_seven(512);
  one_seven[1] = 7;
  const F32 equal{1, -0.0F, infinity, nan};
  return {
      {"equal", {float32, equal}, {float32, equal}, {4, 0}},
      {"no elements", {float32, F32{}, {0, 3}, {3, 1}}, {float32, F32{}, {0, 3}, {3, 1}}, {0, 0}},
      {"the largest of floats, where it is first",
       {float32, F32{1, 2, 3, 4, 5, 6}, {2, 3}},
       {float32, F32{1, 2.5F, 3, 4, 7, 4}, {2, 3}},
       {6, 3, 0, 0, 2.0, {1, 1}}},
      {"as little as float64 can",
       {float64, F64{1, 0}},
       {float64, F64{1, 0x1p-1074}},
       {2, 1, 0, 0, 0x1p-1074, {1}}},
      {"infinite beyond double",
       {float64, F64{1.5e308}},
       {float64, F64{-1.5e308}},
       {1, 1, 0, 0, std::numeric_limits<double>::infinity(), {0}}},
      {"zeros and NaN of other bits",
       {float32, F32{0, nan, 1}},
       {float32, F32{-0.0F, other_nan, 1}},
       {3, 2, 2}},
      {"NaN and infinities, counted apart",
       {float32, F32{1, infinity, infinity, 1, 8}},
       {float32, F32{nan, -infinity, infinity, 2, 8}},
       {5, 3, 0, 2, 1.0, {3}}},
      {"bfloat16: 1 and 2, 1 and -2",
       {bfloat16, U16{0x3F80, 0x4000}},
       {bfloat16, U16{0x3F80, 0xC000}},
       {2, 1, 0, 0, 4.0, {1}}},
      {"float8: 1 and NaN, 1.5 and NaN",
       {float8_e4m3fn, U8{0x38, 0x7F}},
       {float8_e4m3fn, U8{0x3C, 0xFF}},
       {2, 2, 1, 0, 0.5, {0}}},
      {"float32 and bfloat16 by value",
       {float32, F32{1, 1.00390625F, -0.0F, nan}},
       {bfloat16, U16{0x3F80, 0x3F80, 0, 0x7FC1}},
       {4, 1, 0, 0, 0.00390625, {1}}},
      {"float64 and bfloat16 by value",
       {float64, F64{1, 1e300, 0, 3}},
       {bfloat16, U16{0x3F80, 0x3F80, 0, 0x7FC1}},
       {4, 2, 0, 1, 1e300, {1}}},
      {"int64, exactly",
       {int64, I64{least, 9007199254740993}},
       {int64, I64{most, 9007199254740992}},
       {2, 2, 0, 0, std::uint64_t{18446744073709551615U}, {0}}},
      {"uint64, exactly",
       {uint64, U64{3, 18446744073709551615U}},
       {uint64, U64{3, 18446744073709551614U}},
       {2, 1, 0, 0, std::uint64_t{1}, {1}}},
      {"int8",
       {int8, std::vector<std::int8_t>{-128, 1}},
       {int8, std::vector<std::int8_t>{127, 1}},
       {2, 1, 0, 0, std::uint64_t{255}, {0}}},
      {"bools",
       {boolean, U8{0, 1, 1}},
       {boolean, U8{0, 2, 0}},
       {3, 2, 1, 0, std::uint64_t{1}, {2}}},
      {"complex numbers by the modulus",
       {complex64, C64{{1, 2}, {0, 0}, {1, infinity}}},
       {complex64, C64{{4, -2}, {-0.0F, 0}, {2, infinity}}},
       {3, 3, 1, 1, 5.0, {0}}},
      {"complex numbers of doubles",
       {complex128, std::vector<std::complex<double>>{{0, 1}}},
       {complex128, std::vector<std::complex<double>>{{0, 1.5}}},
       {1, 1, 0, 0, 0.5, {0}}},
      {"complex numbers of halves: 1 + 0i and 1 + 2i",
       {complex32, std::vector<std::uint32_t>{0x00003C00}},
       {complex32, std::vector<std::uint32_t>{0x40003C00}},
       {1, 1, 0, 0, 2.0, {0}}},
      {"lazy bits that both have",
       {complex64, C64{{1, 2}}, {}, {}, TensorView::conjugate},
       {complex64, C64{{1, 3}}, {}, {}, TensorView::conjugate},
       {1, 1, 0, 0, 1.0, {0}}},
      {"bits of packed types", {quint4x2, U8{1, 2, 3}}, {quint4x2, U8{1, 0, 0}}, {3, 2}},
      {"bits of quantized types", {qint32, I32{1, 2}}, {qint32, I32{1, 3}}, {2, 1}},
      {"strides do not matter",
       {int32, I32{0, 1, 2, 3, 4, 5}, {2, 3}},
       {int32, I32{0, 3, 1, 4, 2, 9}, {2, 3}, {1, 2}},
       {6, 1, 0, 0, std::uint64_t{4}, {1, 2}}},
      {"many dimensions, piece by piece",
       {uint8, one_seven, std::vector<std::int64_t>(9, 2)},
       {uint8, U8(512), std::vector<std::int64_t>(9, 2), {1, 2, 4, 8, 16, 32, 64, 128, 256}},
       {512, 1, 0, 0, std::uint64_t{7}, {0, 0, 0, 0, 0, 0, 0, 0, 1}}},
      {"rows that both repeat, compared once and counted often",
       {float32, F32{1, 2}, {often, 2}, {0, 1}},
       {float32, F32{1, 4}, {often, 2}, {0, 1}},
       {2199023255552, 1099511627776, 0, 0, 2.0, {0, 1}}},
      {"columns that both repeat",
       {float32, F32{1, 2}, {2, often}, {1, 0}},
       {float32, F32{1, 4}, {2, often}, {1, 0}},
       {2199023255552, 1099511627776, 0, 0, 2.0, {1, 0}}},
      {"rows that one repeats",
       {float32, F32{1, 2, 1, 2, 1, 8}, {3, 2}},
       {float32, F32{1, 2}, {3, 2}, {0, 1}},
       {6, 1, 0, 0, 6.0, {2, 1}}},
  };
}

}  // namespace

TEST_CASE("what is found of two tensors, in either order and either byte order") {
  for (const Row& row : rows()) {
    CAPTURE(std::string(row.name));
    check(found(row.a, row.b), row.expected);
    check(found(row.b, row.a), row.expected);
    check(found(row.a.foreign(), row.b), row.expected);
    check(found(row.a, row.b.foreign()), row.expected);
    check(found(row.a.foreign(), row.b.foreign()), row.expected);
    CHECK(same_bits(row.a.foreign().view(), row.a.view()).value());
  }
}

TEST_CASE("large tensors with strides are compared piece by piece") {
  // 3 MiB, so that rows of both are taken in groups, and columns one by one.
  constexpr std::int64_t rows = 3;
  constexpr std::int64_t columns = 1 << 18;
  std::vector<float> by_row(rows * columns);
  std::vector<float> by_column(rows * columns);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column) {
      const auto value = static_cast<float>(row + 2 * column);
      by_row[static_cast<std::size_t>(row * columns + column)] = value;
      by_column[static_cast<std::size_t>(column * rows + row)] = value;
    }
  by_column[3 * 1000 + 2] -= 0.5F;
  const Tensor wide(DType::float32, by_row, {rows, columns});
  const Tensor wide_transposed(DType::float32, by_column, {rows, columns}, {1, rows});
  check(found(wide, wide_transposed), {786432, 1, 0, 0, 0.5, {2, 1000}});
  const Tensor tall(DType::float32, by_row, {columns, rows}, {1, columns});
  const Tensor tall_transposed(DType::float32, by_column, {columns, rows});
  check(found(tall, tall_transposed), {786432, 1, 0, 0, 0.5, {1000, 2}});
  check(found(tall, tall_transposed.foreign()), {786432, 1, 0, 0, 0.5, {1000, 2}});
}

TEST_CASE("what the strides of both repeat too often is compared only if that is asked for") {
  const std::int64_t dims[48] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
                                 2, 2, 2, 2, 2, 2, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1,
                                 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const std::vector<std::byte> values(26, std::byte{1});
  std::vector<std::byte> changed = values;
  changed.back() = std::byte{2};
  const auto view = [&](unsigned flags) {
    return TensorView(DType::uint8, 24, dims, values.data(), 26, flags);
  };
  const TensorView other(DType::uint8, 24, dims, changed.data(), 26, 0);
  constexpr const char* refusal =
      "the tensor has 25165824 elements in a storage of 26, and its strides may repeat each 1024 "
      "times; the option repeats=any (WEIGHTMAP_REPEATS) lifts this bound";
  CHECK(difference(view(0), other).error().message == refusal);
  CHECK(difference(view(0), other).error().code == ErrorCode::limit_exceeded);
  CHECK(same_bits(view(0), other).error().message == refusal);
  CHECK_FALSE(same_bits(view(TensorView::any_repeats), other).value());
  // Equal bytes need no walk.
  check(difference(view(0), view(0)).value(), {25165824, 0});
  CHECK(same_bits(view(0), view(0)).value());
}

TEST_CASE("several threads find what one finds") {
  // 24 MiB, in several parts of which the same difference is.
  std::vector<float> values(6 << 20, 1);
  const Tensor a(DType::float32, values);
  values[1'000'000] = 3;
  values[2'500'000] = 3;
  values[6'000'000] = 2;
  values[6'291'455] = 3;
  const Tensor b(DType::float32, values);
  check(found(a, b), {6291456, 4, 0, 0, 2.0, {1'000'000}});
  values[6'291'455] = -5;
  const Tensor c(DType::float32, values);
  check(found(a, c), {6291456, 4, 0, 0, 6.0, {6'291'455}});
}

TEST_CASE("what a block had is not found again in a shorter one") {
  std::vector<float> values(1027, 1);
  const Tensor a(DType::float32, values);
  std::fill(values.begin(), values.end() - 3, 9.0F);
  values[1025] = 2;
  const Tensor b(DType::float32, values);
  check(found(a, b), {1027, 1025, 0, 0, 8.0, {0}});
}

TEST_CASE("what is not compared is refused") {
  const C64 one{{1, 2}};
  struct Refusal {
    Tensor a, b;
    ErrorCode code;
    const char* message;
  };
  const std::vector<Refusal> refusals{
      {{complex64, one, {}, {}, TensorView::conjugate},
       {complex64, one},
       ErrorCode::unsupported,
       "one tensor is a lazy conjugate or negative and the other is not, so what they store is not "
       "compared"},
      {{float32, F32{1, 2}, {2, 1}},
       {float32, F32{1, 2}, {1, 2}},
       ErrorCode::invalid_argument,
       "tensors of different shapes cannot be compared"},
      {{float32, F32{1}},
       {int32, I32{1}},
       ErrorCode::unsupported,
       "elements of float32 and int32 are not compared: not both are floating point"}};
  for (const Refusal& refusal : refusals) {
    CAPTURE(std::string(refusal.message));
    const Result<TensorDifference> refused = difference(refusal.a.view(), refusal.b.view());
    REQUIRE(!refused);
    CHECK(refused.error().code == refusal.code);
    CHECK(refused.error().message == refusal.message);
    CHECK_FALSE(same_bits(refusal.a.view(), refusal.b.view()).value());
  }
}

TEST_CASE("whoever follows a comparison may stop it") {
  const Tensor a(DType::uint8, std::vector<std::uint8_t>(3 << 20));
  std::vector<std::uint64_t> told;
  const auto stop_at_two = [&](std::uint64_t done, std::uint64_t all) {
    CHECK(all == 3 << 20);
    told.push_back(done);
    return told.size() < 2;
  };
  CHECK_FAILS(difference(a.view(), a.view(), stop_at_two), ErrorCode::cancelled, "");
  CHECK(told == std::vector<std::uint64_t>{1 << 20, 2 << 20});
  told.clear();
  CHECK_FAILS(same_bits(a.view(), a.view(), stop_at_two), ErrorCode::cancelled, "");
}

TEST_CASE("same bits are not the same values") {
  const Tensor a(DType::float32, std::vector<float>{0, std::nanf("")});
  const Tensor b(DType::float32, std::vector<float>{-0.0F, std::nanf("")});
  CHECK(same_bits(a.view(), a.view()).value());
  CHECK_FALSE(same_bits(a.view(), b.view()).value());
}
