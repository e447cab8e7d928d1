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

#include "weightmap/half.hpp"
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

void check_counts(const TensorDifference& all, std::uint64_t count, std::uint64_t differing,
                  std::uint64_t same_value, std::uint64_t not_finite) {
  CHECK(all.count == count);
  CHECK(all.differing == differing);
  CHECK(all.same_value == same_value);
  CHECK(all.not_finite == not_finite);
}

void check_largest(const TensorDifference& all, Number largest, std::vector<std::int64_t> at) {
  REQUIRE(all.largest.has_value());
  CHECK(*all.largest == largest);
  CHECK(all.at == at);
}

void check_no_largest(const TensorDifference& all) {
  CHECK(all.largest == std::nullopt);
  CHECK(all.at.empty());
}

void check_refused(const Tensor& a, const Tensor& b, ErrorCode code, const std::string& message) {
  const Result<TensorDifference> refused = difference(a.view(), b.view());
  REQUIRE(!refused);
  CHECK(refused.error().code == code);
  CHECK(refused.error().message == message);
}

}  // namespace

TEST_CASE("equal tensors do not differ") {
  const Tensor one(DType::float32, std::vector<float>{1, -0.0F, infinity, std::nanf("")});
  check_counts(found(one, one), 4, 0, 0, 0);
  check_no_largest(found(one, one));
}

TEST_CASE("tensors without elements are equal") {
  const Tensor none(DType::float32, std::vector<float>{}, {0, 3}, {3, 1});
  check_counts(found(none, none), 0, 0, 0, 0);
  CHECK(same_bits(none.view(), none.view()).value());
}

TEST_CASE("the largest difference of floats, and where it is first") {
  const Tensor a(DType::float32, std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b(DType::float32, std::vector<float>{1, 2.5F, 3, 4, 7, 4}, {2, 3});
  check_counts(found(a, b), 6, 3, 0, 0);
  check_largest(found(a, b), 2.0, {1, 1});
  check_largest(found(b, a), 2.0, {1, 1});
}

TEST_CASE("float64 differs by as little as it can") {
  const Tensor a(DType::float64, std::vector<double>{1, 0});
  const Tensor b(DType::float64, std::vector<double>{1, 0x1p-1074});
  check_counts(found(a, b), 2, 1, 0, 0);
  check_largest(found(a, b), 0x1p-1074, {1});
}

TEST_CASE("a difference beyond double is infinite") {
  const Tensor a(DType::float64, std::vector<double>{1.5e308});
  const Tensor b(DType::float64, std::vector<double>{-1.5e308});
  check_counts(found(a, b), 1, 1, 0, 0);
  check_largest(found(a, b), std::numeric_limits<double>::infinity(), {0});
}

TEST_CASE("zeros and NaN of other bits are the same value") {
  const float nan = std::bit_cast<float>(0x7FC00000);
  const float other_nan = std::bit_cast<float>(0xFFC00001);
  const Tensor a(DType::float32, std::vector<float>{0, nan, 1});
  const Tensor b(DType::float32, std::vector<float>{-0.0F, other_nan, 1});
  check_counts(found(a, b), 3, 2, 2, 0);
  check_no_largest(found(a, b));
}

TEST_CASE("NaN and infinities are counted apart") {
  const Tensor a(DType::float32, std::vector<float>{1, infinity, infinity, 1, 8});
  const Tensor b(DType::float32, std::vector<float>{std::nanf(""), -infinity, infinity, 2, 8});
  check_counts(found(a, b), 5, 3, 0, 2);
  check_largest(found(a, b), 1.0, {3});
}

TEST_CASE("small floats of one type") {
  const Tensor a(DType::bfloat16, std::vector<std::uint16_t>{0x3F80, 0x4000});  // 1, 2
  const Tensor b(DType::bfloat16, std::vector<std::uint16_t>{0x3F80, 0xC000});  // 1, -2
  check_counts(found(a, b), 2, 1, 0, 0);
  check_largest(found(a, b), 4.0, {1});
  const Tensor c(DType::float8_e4m3fn, std::vector<std::uint8_t>{0x38, 0x7F});  // 1, NaN
  const Tensor d(DType::float8_e4m3fn, std::vector<std::uint8_t>{0x3C, 0xFF});  // 1.5, NaN
  check_counts(found(c, d), 2, 2, 1, 0);
  check_largest(found(c, d), 0.5, {0});
}

TEST_CASE("two floating point types are compared by value") {
  const Tensor wide(DType::float32, std::vector<float>{1, 1.00390625F, -0.0F, std::nanf("")});
  const Tensor narrow(DType::bfloat16, std::vector<std::uint16_t>{0x3F80, 0x3F80, 0, 0x7FC1});
  check_counts(found(wide, narrow), 4, 1, 0, 0);
  check_largest(found(wide, narrow), 0.00390625, {1});
  check_counts(found(narrow, wide), 4, 1, 0, 0);
  const Tensor widest(DType::float64, std::vector<double>{1, 1e300, 0, 3});
  check_counts(found(widest, narrow), 4, 2, 0, 1);
  check_largest(found(widest, narrow), 1e300, {1});
}

TEST_CASE("differences of integers of 64 bits are exact") {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const Tensor a(DType::int64, std::vector<std::int64_t>{least, 9007199254740993});
  const Tensor b(DType::int64, std::vector<std::int64_t>{most, 9007199254740992});
  check_counts(found(a, b), 2, 2, 0, 0);
  check_largest(found(a, b), std::uint64_t{18446744073709551615U}, {0});
  check_largest(found(b, a), std::uint64_t{18446744073709551615U}, {0});
  const Tensor c(DType::uint64, std::vector<std::uint64_t>{3, 18446744073709551615U});
  const Tensor d(DType::uint64, std::vector<std::uint64_t>{3, 18446744073709551614U});
  check_largest(found(c, d), std::uint64_t{1}, {1});
}

TEST_CASE("small integers and bools") {
  const Tensor a(DType::int8, std::vector<std::int8_t>{-128, 1});
  const Tensor b(DType::int8, std::vector<std::int8_t>{127, 1});
  check_largest(found(a, b), std::uint64_t{255}, {0});
  const Tensor c(DType::boolean, std::vector<std::uint8_t>{0, 1, 1});
  const Tensor d(DType::boolean, std::vector<std::uint8_t>{0, 2, 0});
  check_counts(found(c, d), 3, 2, 1, 0);
  check_largest(found(c, d), std::uint64_t{1}, {2});
}

TEST_CASE("complex numbers differ by the modulus") {
  using Complex = std::complex<float>;
  const Tensor a(DType::complex64, std::vector<Complex>{{1, 2}, {0, 0}, {1, infinity}});
  const Tensor b(DType::complex64, std::vector<Complex>{{4, -2}, {-0.0F, 0}, {2, infinity}});
  check_counts(found(a, b), 3, 3, 1, 1);
  check_largest(found(a, b), 5.0, {0});
  const Tensor c(DType::complex128, std::vector<std::complex<double>>{{0, 1}});
  const Tensor d(DType::complex128, std::vector<std::complex<double>>{{0, 1.5}});
  check_largest(found(c, d), 0.5, {0});
  // 1 + 0i and 1 + 2i
  const Tensor e(DType::complex32, std::vector<std::uint32_t>{0x00003C00});
  const Tensor f(DType::complex32, std::vector<std::uint32_t>{0x40003C00});
  check_largest(found(e, f), 2.0, {0});
}

TEST_CASE("of quantized and packed types bits are compared") {
  const Tensor a(DType::quint4x2, std::vector<std::uint8_t>{1, 2, 3});
  const Tensor b(DType::quint4x2, std::vector<std::uint8_t>{1, 0, 0});
  check_counts(found(a, b), 3, 2, 0, 0);
  check_no_largest(found(a, b));
  const Tensor c(DType::qint32, std::vector<std::int32_t>{1, 2});
  const Tensor d(DType::qint32, std::vector<std::int32_t>{1, 3});
  check_counts(found(c, d), 2, 1, 0, 0);
}

TEST_CASE("the byte order of a file does not matter") {
  const Tensor a(DType::float32, std::vector<float>{1, 2, 3});
  const Tensor b(DType::float32, std::vector<float>{1, 2, 5});
  check_counts(found(a, a.foreign()), 3, 0, 0, 0);
  check_largest(found(a, b.foreign()), 2.0, {2});
  check_largest(found(a.foreign(), b.foreign()), 2.0, {2});
  const Tensor c(DType::complex64, std::vector<std::complex<float>>{{1, 2}});
  check_counts(found(c.foreign(), c), 1, 0, 0, 0);
  CHECK(same_bits(c.foreign().view(), c.view()).value());
}

TEST_CASE("strides do not matter") {
  const Tensor plain(DType::int32, std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor transposed(DType::int32, std::vector<std::int32_t>{0, 3, 1, 4, 2, 9}, {2, 3},
                          {1, 2});
  check_counts(found(plain, transposed), 6, 1, 0, 0);
  check_largest(found(plain, transposed), std::uint64_t{4}, {1, 2});
  check_largest(found(transposed, plain), std::uint64_t{4}, {1, 2});
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
  check_counts(found(wide, wide_transposed), 786432, 1, 0, 0);
  check_largest(found(wide, wide_transposed), 0.5, {2, 1000});
  const Tensor tall(DType::float32, by_row, {columns, rows}, {1, columns});
  const Tensor tall_transposed(DType::float32, by_column, {columns, rows});
  check_largest(found(tall, tall_transposed), 0.5, {1000, 2});
  check_largest(found(tall, tall_transposed.foreign()), 0.5, {1000, 2});
}

TEST_CASE("what both repeat is compared once, and counted as often as it is there") {
  constexpr std::int64_t times = std::int64_t{1} << 40;
  const Tensor a(DType::float32, std::vector<float>{1, 2}, {times, 2}, {0, 1});
  const Tensor b(DType::float32, std::vector<float>{1, 4}, {times, 2}, {0, 1});
  check_counts(found(a, b), 2199023255552, 1099511627776, 0, 0);
  check_largest(found(a, b), 2.0, {0, 1});
  const Tensor c(DType::float32, std::vector<float>{1, 2, 1, 2, 1, 8}, {3, 2});
  const Tensor d(DType::float32, std::vector<float>{1, 2}, {3, 2}, {0, 1});
  check_counts(found(c, d), 6, 1, 0, 0);
  check_largest(found(c, d), 6.0, {2, 1});
  const Tensor e(DType::float32, std::vector<float>{1, 2}, {2, times}, {1, 0});
  const Tensor f(DType::float32, std::vector<float>{1, 4}, {2, times}, {1, 0});
  check_counts(found(e, f), 2199023255552, 1099511627776, 0, 0);
  check_largest(found(e, f), 2.0, {1, 0});
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
  check_counts(difference(view(0), view(0)).value(), 25165824, 0, 0, 0);
  CHECK(same_bits(view(0), view(0)).value());
}

TEST_CASE("tensors of many dimensions are compared piece by piece") {
  const std::vector<std::int64_t> shape(9, 2);
  std::vector<std::int64_t> reversed;
  for (std::int64_t stride = 1; stride < 512; stride *= 2) reversed.push_back(stride);
  std::vector<std::uint8_t> values(512);
  values[1] = 7;
  const Tensor a(DType::uint8, values, shape);
  const Tensor b(DType::uint8, std::vector<std::uint8_t>(512), shape, reversed);
  check_counts(found(a, b), 512, 1, 0, 0);
  check_largest(found(a, b), std::uint64_t{7}, {0, 0, 0, 0, 0, 0, 0, 0, 1});
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
  check_counts(found(a, b), 6291456, 4, 0, 0);
  check_largest(found(a, b), 2.0, {1'000'000});
  values[6'291'455] = -5;
  const Tensor c(DType::float32, values);
  check_largest(found(a, c), 6.0, {6'291'455});
}

TEST_CASE("what a block had is not found again in a shorter one") {
  std::vector<float> values(1027, 1);
  const Tensor a(DType::float32, values);
  std::fill(values.begin(), values.end() - 3, 9.0F);
  values[1025] = 2;
  const Tensor b(DType::float32, values);
  check_counts(found(a, b), 1027, 1025, 0, 0);
  check_largest(found(a, b), 8.0, {0});
}

TEST_CASE("lazy bits that both have do not matter") {
  using Complex = std::complex<float>;
  const Tensor a(DType::complex64, std::vector<Complex>{{1, 2}}, {}, {}, TensorView::conjugate);
  const Tensor b(DType::complex64, std::vector<Complex>{{1, 3}}, {}, {}, TensorView::conjugate);
  check_largest(found(a, b), 1.0, {0});
  const Tensor plain(DType::complex64, std::vector<Complex>{{1, 2}});
  check_refused(a, plain, ErrorCode::unsupported,
                "one tensor is a lazy conjugate or negative and the other is not, so what they "
                "store is not compared");
  CHECK_FALSE(same_bits(a.view(), plain.view()).value());
}

TEST_CASE("other shapes are refused") {
  const Tensor a(DType::float32, std::vector<float>{1, 2}, {2, 1});
  const Tensor b(DType::float32, std::vector<float>{1, 2}, {1, 2});
  check_refused(a, b, ErrorCode::invalid_argument,
                "tensors of different shapes cannot be compared");
  CHECK_FALSE(same_bits(a.view(), b.view()).value());
}

TEST_CASE("an integer type and another type are refused") {
  const Tensor a(DType::float32, std::vector<float>{1});
  const Tensor b(DType::int32, std::vector<std::int32_t>{1});
  check_refused(a, b, ErrorCode::unsupported,
                "elements of float32 and int32 are not compared: not both are floating point");
  CHECK_FALSE(same_bits(a.view(), b.view()).value());
}

TEST_CASE("whoever follows a comparison may stop it") {
  const Tensor a(DType::uint8, std::vector<std::uint8_t>(3 << 20));
  std::vector<std::uint64_t> told;
  const auto stop_at_two = [&](std::uint64_t done, std::uint64_t all) {
    CHECK(all == 3 << 20);
    told.push_back(done);
    return told.size() < 2;
  };
  const Result<TensorDifference> stopped = difference(a.view(), a.view(), stop_at_two);
  REQUIRE(!stopped);
  CHECK(stopped.error().code == ErrorCode::cancelled);
  CHECK(told == std::vector<std::uint64_t>{1 << 20, 2 << 20});
  told.clear();
  const Result<bool> stopped_bits = same_bits(a.view(), a.view(), stop_at_two);
  REQUIRE(!stopped_bits);
  CHECK(stopped_bits.error().code == ErrorCode::cancelled);
}

TEST_CASE("same bits are not the same values") {
  const Tensor a(DType::float32, std::vector<float>{0, std::nanf("")});
  const Tensor b(DType::float32, std::vector<float>{-0.0F, std::nanf("")});
  CHECK(same_bits(a.view(), a.view()).value());
  CHECK_FALSE(same_bits(a.view(), b.view()).value());
}
