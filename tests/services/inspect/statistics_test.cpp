// Statistics of tensors, and that both ways to them agree.
#include "runtime/services/inspect/statistics.hpp"

#include <doctest/doctest.h>
#include <sched.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

using namespace weightmap;

namespace {

constexpr std::uint64_t always = 0;
constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

// A tensor of one dimension over values.
template <class T>
struct Numbers {
  std::vector<T> values;
  DType dtype;
  std::int64_t dims[2] = {static_cast<std::int64_t>(values.size()), 1};

  TensorView view() const {
    return {dtype,
            1,
            dims,
            reinterpret_cast<const std::byte*>(values.data()),
            values.size() * sizeof(T),
            0};
  }
};

template <class T>
TensorStatistics statistics_of(std::vector<T> values, DType dtype) {
  const Numbers<T> numbers{std::move(values), dtype};
  return statistics(numbers.view()).value();
}

template <class T>
T get(const std::optional<Number>& number) {
  REQUIRE(number.has_value());
  REQUIRE(std::holds_alternative<T>(*number));
  return std::get<T>(*number);
}

std::vector<std::uint16_t> every_pattern() {
  std::vector<std::uint16_t> patterns(65536);
  std::iota(patterns.begin(), patterns.end(), std::uint16_t{0});
  return patterns;
}

void check_same(const TensorStatistics& one, const TensorStatistics& two) {
  CHECK(one.count == two.count);
  CHECK(one.nan == two.nan);
  CHECK(one.infinite == two.infinite);
  CHECK(one.zeros == two.zeros);
  CHECK(one.min == two.min);
  CHECK(one.max == two.max);
  REQUIRE(one.mean.has_value() == two.mean.has_value());
  if (!one.mean) return;
  // Of the spread, not of the mean: that may be next to 0.
  CHECK(std::abs(*one.mean - *two.mean) <= 1e-12 * *two.std);
  CHECK(*one.std == doctest::Approx(*two.std).epsilon(1e-12));
}

}  // namespace

TEST_CASE("statistics of floats are of the finite ones") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const TensorStatistics found = statistics_of<float>(
      {1, -2, 0, -0.0F, 5, infinity, -infinity, std::nanf("")}, DType::float32);
  CHECK(found.count == 8);
  CHECK(found.nan == 1);
  CHECK(found.infinite == 2);
  CHECK(found.zeros == 2);
  CHECK(get<double>(found.min) == -2);
  CHECK(get<double>(found.max) == 5);
  CHECK(*found.mean == doctest::Approx(0.8).epsilon(1e-15));
  CHECK(*found.std == doctest::Approx(std::sqrt(5.36)).epsilon(1e-15));
}

TEST_CASE("a tensor without finite elements has counts only") {
  const TensorStatistics none = statistics_of<double>({}, DType::float64);
  CHECK(none.count == 0);
  CHECK(none.min == std::nullopt);
  CHECK(none.std == std::nullopt);
  const TensorStatistics nan = statistics_of<double>({std::nan("")}, DType::float64);
  CHECK(nan.count == 1);
  CHECK(nan.nan == 1);
  CHECK(nan.max == std::nullopt);
  CHECK(nan.mean == std::nullopt);
}

TEST_CASE("integers of 64 bits are exact") {
  const TensorStatistics found = statistics_of<std::int64_t>(
      {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::max(),
       std::numeric_limits<std::int64_t>::min(), 0},
      DType::int64);
  CHECK(get<std::int64_t>(found.min) == std::numeric_limits<std::int64_t>::min());
  CHECK(get<std::int64_t>(found.max) == std::numeric_limits<std::int64_t>::max());
  CHECK(found.zeros == 1);
  CHECK(*found.mean == 2305843009213693951.5);  // rounded once
  const TensorStatistics wide =
      statistics_of<std::uint64_t>({std::numeric_limits<std::uint64_t>::max(), 1}, DType::uint64);
  CHECK(get<std::uint64_t>(wide.max) == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("small integers and bools") {
  const TensorStatistics bytes = statistics_of<std::int8_t>({-128, 127, 0, 1}, DType::int8);
  CHECK(get<std::int64_t>(bytes.min) == -128);
  CHECK(get<std::int64_t>(bytes.max) == 127);
  CHECK(*bytes.mean == 0);
  CHECK(*bytes.std == doctest::Approx(std::sqrt(8128.5)).epsilon(1e-15));
  const TensorStatistics bools = statistics_of<std::uint8_t>({0, 1, 2, 255}, DType::boolean);
  CHECK(get<std::uint64_t>(bools.max) == 1);
  CHECK(bools.zeros == 1);
  CHECK(*bools.mean == 0.75);
}

TEST_CASE("the spread of numbers far from zero is not lost") {
  std::vector<double> values;
  for (int i = 0; i < 10000; ++i) values.push_back(1e9 + i % 2);
  const TensorStatistics found = statistics_of(values, DType::float64);
  CHECK(*found.mean == 1e9 + 0.5);
  CHECK(*found.std == 0.5);
}

TEST_CASE("doubles whose sums no double holds have a range, and no mean or spread") {
  const TensorStatistics squares = statistics_of<double>({1e200, 3e200}, DType::float64);
  CHECK(*squares.mean == doctest::Approx(2e200).epsilon(1e-15));
  CHECK(squares.std == std::nullopt);
  const TensorStatistics sums = statistics_of<double>(
      {1e308, 1e308, -1, std::numeric_limits<double>::infinity(), std::nan("")}, DType::float64);
  CHECK(sums.count == 5);
  CHECK(sums.infinite == 1);
  CHECK(sums.nan == 1);
  CHECK(get<double>(sums.min) == -1);
  CHECK(get<double>(sums.max) == 1e308);
  CHECK(sums.mean == std::nullopt);
  CHECK(sums.std == std::nullopt);
  const TensorStatistics small = statistics_of<double>({1e-150, 3e-150}, DType::float64);
  CHECK(*small.std == doctest::Approx(1e-150).epsilon(1e-15));
}

TEST_CASE("what a tensor repeats is read once") {
  const Numbers<float> numbers{{1, 2, 0, std::nanf("")}, DType::float32};
  constexpr std::int64_t often = std::int64_t{1} << 40;
  const std::int64_t dims[6] = {often, 4, 3, 0, 1, 0};
  const TensorView view(DType::float32, 3, dims, numbers.view().data(), 16, 0);
  std::uint64_t read = 0;
  const TensorStatistics found = statistics(view, [&](std::uint64_t, std::uint64_t all) {
                                   read = all;
                                   return all == 16;
                                 }).value();
  CHECK(read == 16);
  CHECK(found.count == std::uint64_t{12} << 40);
  CHECK(found.nan == std::uint64_t{3} << 40);
  CHECK(found.zeros == std::uint64_t{3} << 40);
  CHECK(*found.mean == 1);
  CHECK(get<double>(found.max) == 2);
  // Of more dimensions than can be sliced; all of them repeat.
  const std::int64_t many[20] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
  const TensorView deep(DType::float32, 10, many, numbers.view().data(), 4, 0);
  CHECK(statistics(deep).value().count == 1073741824);
  CHECK(*statistics(deep).value().std == 0);
}

TEST_CASE("a repeated tensor without elements has none") {
  const Numbers<float> numbers{{}, DType::float32};
  const std::int64_t dims[4] = {5, 0, 0, 0};
  const TensorView view(DType::float32, 2, dims, nullptr, 0, 0);
  CHECK(statistics(view).value().count == 0);
  const std::int64_t foreign_dims[4] = {3, 2, 0, 1};
  const Numbers<std::uint32_t> swapped{{0x0000803F, 0x00000040}, DType::float32};  // 1, 2
  const TensorView foreign(DType::float32, 2, foreign_dims,
                           reinterpret_cast<const std::byte*>(swapped.values.data()), 8,
                           TensorView::foreign_order);
  CHECK(statistics(foreign).value().count == 6);
  CHECK(*statistics(foreign).value().mean == 1.5);
}

TEST_CASE("elements that strides repeat count as often as they do") {
  const Numbers<float> numbers{{1, -2, 0, std::nanf(""), 5, 7, 3, 4}, DType::float32};
  const std::vector<std::vector<std::int64_t>> shapes = {
      {5, 4, 1, 1},              // sums of both: 0 to 7
      {3, 3, 2, 1, 1, 3},        // the longer stride last
      {2, 2, 2, 2, 1, 1, 2, 3},  // two that are equal
      {4, 2, 5, 1, 0, 1}};       // one that is 0
  for (const std::vector<std::int64_t>& dims : shapes) {
    CAPTURE(dims);
    const TensorView view(DType::float32, dims.size() / 2, dims.data(), numbers.view().data(), 32,
                          0);
    std::vector<float> elements(view.numel());
    REQUIRE(view.gather(std::as_writable_bytes(std::span(elements))).has_value());
    check_same(statistics(view).value(), statistics_of(elements, DType::float32));
  }
}

TEST_CASE("repeated elements are counted without going through them") {
  const Numbers<std::int64_t> numbers{std::vector<std::int64_t>(64, 1), DType::int64};
  const auto bytes = reinterpret_cast<const std::byte*>(numbers.values.data());
  std::vector<std::int64_t> many(124, 1);  // 2^62 elements
  std::fill_n(many.begin(), 62, std::int64_t{2});
  const TensorStatistics sixty_two =
      statistics(TensorView(DType::int64, 62, many.data(), bytes, 512, 0)).value();
  CHECK(sixty_two.count == std::uint64_t{1} << 62);
  CHECK(*sixty_two.mean == 1);
  CHECK(*sixty_two.std == 0);
  std::vector<float> ramp(19991);
  std::iota(ramp.begin(), ramp.end(), 0.0F);
  const std::int64_t dims[8] = {2000, 2000, 2000, 2000, 1, 2, 3, 4};
  const TensorStatistics windows =
      statistics(TensorView(DType::float32, 4, dims,
                            reinterpret_cast<const std::byte*>(ramp.data()), 79964, 0))
          .value();
  CHECK(windows.count == 16'000'000'000'000);
  CHECK(windows.zeros == 1);
  CHECK(get<double>(windows.max) == 19990);
  CHECK(*windows.mean == doctest::Approx(9995).epsilon(1e-12));  // 1999 / 2 * (1 + 2 + 3 + 4)
  // The variance of 0 to 1999 is (2000^2 - 1) / 12, times 1 + 4 + 9 + 16.
  CHECK(*windows.std == doctest::Approx(std::sqrt(3999999.0 / 12 * 30)).epsilon(1e-12));
}

TEST_CASE("blocks that are not full count") {
  for (const std::size_t count : {1U, 7U, 8U, 9U, 4095U, 4096U, 4097U, 12289U}) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), -1.0F);
    const TensorStatistics found = statistics_of(values, DType::float32);
    const auto last = static_cast<double>(count) - 2;
    CHECK(found.count == count);
    CHECK(found.zeros == (count > 1 ? 1 : 0));
    CHECK(get<double>(found.min) == -1);
    CHECK(get<double>(found.max) == last);
    CHECK(*found.mean == doctest::Approx((last - 1) / 2).epsilon(1e-14));
  }
}

TEST_CASE("counting each value gives what going through the elements gives") {
  for (const DType dtype :
       {DType::float16, DType::bfloat16, DType::int16, DType::uint16, DType::float8_e5m2,
        DType::float8_e4m3fn, DType::float8_e5m2fnuz, DType::float8_e4m3fnuz, DType::float8_e8m0fnu,
        DType::int8, DType::uint8, DType::boolean}) {
    CAPTURE(std::string(to_string(dtype)));
    const Numbers<std::uint16_t> patterns{every_pattern(), dtype};
    const auto elements = static_cast<std::int64_t>(131072 / element_size(dtype));
    for (const std::int64_t count : {elements, elements - 1, std::int64_t{3}}) {
      const std::int64_t dims[2] = {count, 1};
      const TensorView view(dtype, 1, dims, patterns.view().data(), 131072, 0);
      check_same(inspect::statistics(view, {}, always).value(),
                 inspect::statistics(view, {}, never).value());
    }
  }
}

TEST_CASE("strides and the other byte order are followed") {
  const Numbers<float> numbers{{0, 1, 2, 3, 4, 5, 6, 7}, DType::float32};
  const std::int64_t dims[4] = {2, 2, 4, 2};  // 0, 2, 4, 6
  const TensorView view(DType::float32, 2, dims, numbers.view().data(), 28, 0);
  CHECK(*statistics(view).value().mean == 3);
  CHECK(get<double>(statistics(view).value().max) == 6);
  const Numbers<std::uint32_t> swapped{{0x0000803F, 0x00000040}, DType::float32};  // 1, 2
  const std::int64_t two[2] = {2, 1};
  const TensorView foreign(DType::float32, 1, two,
                           reinterpret_cast<const std::byte*>(swapped.values.data()), 8,
                           TensorView::foreign_order);
  CHECK(*statistics(foreign).value().mean == 1.5);
}

TEST_CASE("what has no statistics is refused by name") {
  const Numbers<std::uint64_t> numbers{{0, 0}, DType::complex64};
  const Result<TensorStatistics> complex = statistics(numbers.view());
  REQUIRE(!complex);
  CHECK(complex.error().code == ErrorCode::unsupported);
  CHECK(complex.error().message ==
        "complex64 tensors have no statistics: complex numbers have no order");
  const Numbers<std::uint8_t> quantized{{0, 0}, DType::quint8};
  CHECK(statistics(quantized.view()).error().message ==
        "quint8 tensors have no statistics: what they store are not their values");
  const Numbers<float> floats{{1, 2}, DType::float32};
  const TensorView negative(DType::float32, 1, floats.dims, floats.view().data(), 8,
                            TensorView::negative);
  CHECK(statistics(negative).error().code == ErrorCode::unsupported);
}

TEST_CASE("progress counts bytes and may end the work") {
  const Numbers<float> numbers{std::vector<float>(700000), DType::float32};
  std::vector<std::uint64_t> seen;
  REQUIRE(statistics(numbers.view(), [&](std::uint64_t done, std::uint64_t all) {
            CHECK(all == 2800000);
            seen.push_back(done);
            return true;
          }).has_value());
  CHECK(seen == std::vector<std::uint64_t>{1048576, 2097152, 2800000});
  int calls = 0;
  const Result<TensorStatistics> stopped =
      statistics(numbers.view(), [&](std::uint64_t, std::uint64_t) { return ++calls == 0; });
  CHECK(calls == 1);
  CHECK(stopped.error().code == ErrorCode::cancelled);
  CHECK(stopped.error().message == "was cancelled after 1048576 of 2800000 bytes");
}

TEST_CASE("large tensors, which several threads share, have the figures of their elements") {
  constexpr std::size_t count = 5'000'003;  // 20 MB
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 4);
  values[0] = -7;
  values[count - 1] = 9;
  values[count / 2] = std::numeric_limits<float>::quiet_NaN();
  const TensorStatistics found = statistics_of(values, DType::float32);
  CHECK(found.count == count);
  CHECK(found.nan == 1);
  CHECK(found.zeros == 1'250'000);
  CHECK(get<double>(found.min) == -7);
  CHECK(get<double>(found.max) == 9);
  double sum = 0;
  for (const float value : values) sum += std::isnan(value) ? 0 : value;
  CHECK(*found.mean == doctest::Approx(sum / (count - 1)).epsilon(1e-14));

  std::vector<std::int64_t> wide(count, std::int64_t{1} << 60);  // 40 MB, no double holds the sum
  wide[7] = -5;
  CHECK(*statistics_of(wide, DType::int64).mean ==
        doctest::Approx(0x1p60 * (count - 1) / count).epsilon(1e-15));

  std::vector<std::uint16_t> halves(count, 0x3F80);  // 10 MB of bfloat16: 1
  halves[count - 1] = 0x7F80;                        // infinity
  const TensorStatistics of_halves = statistics_of(halves, DType::bfloat16);
  CHECK(of_halves.count == count);
  CHECK(of_halves.infinite == 1);
  CHECK(*of_halves.mean == 1);
  CHECK(*of_halves.std == 0);
}

TEST_CASE("the figures of a large tensor do not depend on the number of processors") {
  std::vector<float> values(4'000'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  const TensorStatistics by_all = statistics_of(values, DType::float32);
  cpu_set_t all;
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const TensorStatistics by_one = statistics_of(values, DType::float32);
  REQUIRE(sched_setaffinity(0, sizeof all, &all) == 0);
  CHECK(*by_all.mean == *by_one.mean);
  CHECK(*by_all.std == *by_one.std);
}

TEST_CASE("progress follows several threads to the end, and stops all of them") {
  const Numbers<float> numbers{std::vector<float>(5'000'000), DType::float32};
  std::uint64_t last = 0;
  REQUIRE(statistics(numbers.view(), [&](std::uint64_t done, std::uint64_t all) {
            CHECK(all == 20'000'000);
            CHECK(done >= last);
            last = done;
            return true;
          }).has_value());
  CHECK(last == 20'000'000);
  int calls = 0;
  const Result<TensorStatistics> stopped =
      statistics(numbers.view(), [&](std::uint64_t, std::uint64_t) { return ++calls == 0; });
  CHECK(calls == 1);
  CHECK(stopped.error().code == ErrorCode::cancelled);
}
