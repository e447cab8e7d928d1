#include "weightmap/tensor_view.hpp"

#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tests/support/texts.hpp"
#include "weightmap/half.hpp"

using namespace weightmap;
using test::list;

namespace {

// 24 consecutive int32, seen as a tensor.
struct Numbers {
  Numbers() { std::iota(values.begin(), values.end(), 0); }
  TensorView view(std::vector<std::int64_t> shape_and_strides, unsigned flags = 0,
                  DType dtype = DType::int32) {
    dims = std::move(shape_and_strides);
    return {dtype,         dims.size() / 2,
            dims.data(),   reinterpret_cast<const std::byte*>(values.data()),
            sizeof values, flags};
  }
  std::array<std::int32_t, 24> values;
  std::vector<std::int64_t> dims;
};

std::vector<std::int32_t> elements(const TensorView& view) {
  std::vector<std::int32_t> out(view.numel());
  REQUIRE(view.gather(std::as_writable_bytes(std::span(out))).has_value());
  return out;
}

struct Matrix {
  Numbers numbers;
  TensorView view = numbers.view({4, 6, 6, 1});
};

struct OfNumbers {
  Numbers numbers;
};

}  // namespace

TEST_CASE_FIXTURE(Matrix, "reads a contiguous tensor in place") {
  CHECK(view.rank() == 2);
  CHECK(view.numel() == 24);
  CHECK(view.nbytes() == 96);
  CHECK(view.is_contiguous());
  const auto span = view.as<std::int32_t>().value();
  CHECK(span.data() == numbers.values.data());
  CHECK(span.size() == 24);
}

TEST_CASE_FIXTURE(OfNumbers, "ignores the stride of dimensions of size one") {
  CHECK(numbers.view({1, 24, 7, 1}).is_contiguous());
  CHECK(numbers.view({24, 1, 1, 99}).is_contiguous());
  CHECK(!numbers.view({4, 6, 1, 4}).is_contiguous());
}

TEST_CASE_FIXTURE(OfNumbers, "counts a scalar as one element and an empty tensor as none") {
  CHECK(numbers.view({}).numel() == 1);
  CHECK(elements(numbers.view({})) == std::vector{0});
  CHECK(numbers.view({3, 0, 1, 1}).numel() == 0);
  CHECK(numbers.view({3, 0, 1, 1}).is_contiguous());
}

TEST_CASE_FIXTURE(OfNumbers, "gathers transposed, strided and expanded tensors row-major") {
  CHECK(elements(numbers.view({3, 2, 1, 3})) == std::vector{0, 3, 1, 4, 2, 5});
  CHECK(elements(numbers.view({3, 8})) == std::vector{0, 8, 16});
  CHECK(elements(numbers.view({2, 3, 0, 1})) == std::vector{0, 1, 2, 0, 1, 2});
  CHECK(elements(numbers.view({2, 2, 3, 12, 1, 4})) ==
        std::vector{0, 4, 8, 1, 5, 9, 12, 16, 20, 13, 17, 21});
}

TEST_CASE_FIXTURE(Matrix, "narrows without copying") {
  const TensorSlice rows = view.narrow(0, 1, 2).value();
  CHECK(list(rows.shape()) == std::vector<std::int64_t>{2, 6});
  CHECK(rows.data() == view.data() + 24);
  CHECK(rows.is_contiguous());
  CHECK(rows.bytes().size() == 48);
  const TensorSlice tile = rows.narrow(1, 2, 3).value();
  CHECK(elements(tile) == std::vector{8, 9, 10, 14, 15, 16});
  CHECK(tile.bytes().size() == (6 + 2 + 1) * 4);
  CHECK(list(tile.strides()) == std::vector<std::int64_t>{6, 1});
}

TEST_CASE_FIXTURE(Matrix, "narrows by steps") {
  const TensorSlice odd = view.narrow(1, 1, 3, 2).value();
  CHECK(list(odd.strides()) == std::vector<std::int64_t>{6, 2});
  CHECK(elements(odd) == std::vector{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23});
  CHECK(elements(odd.narrow(0, 0, 2, 3).value()) == std::vector{1, 3, 5, 19, 21, 23});
  CHECK(elements(view.narrow(0, 3, 1, std::numeric_limits<std::int64_t>::max()).value()) ==
        std::vector{18, 19, 20, 21, 22, 23});
  CHECK(view.narrow(1, 0, 4, 2).error().message ==
        "4 elements from 0 by 2 leave dimension 1 of size 6");
  CHECK(view.narrow(1, 6, 1).error().message == "1 element from 6 leaves dimension 1 of size 6");
  CHECK(view.narrow(1, 0, 2, 0).error().message ==
        "a slice goes forward, by a step of at least 1, not 0");
}

TEST_CASE("shows the stored bits of any type but the widest") {
  const float one = 1;
  const std::int64_t dims[] = {1, 1};
  const auto view = [&](DType dtype, unsigned flags = 0) {
    return TensorView(dtype, 1, dims, reinterpret_cast<const std::byte*>(&one), element_size(dtype),
                      flags);
  };
  CHECK(view(DType::float32).bits().value().as<std::uint32_t>().value().front() == 0x3F800000);
  CHECK(view(DType::bfloat16).bits().value().dtype() == DType::uint16);
  CHECK(view(DType::float8_e5m2).bits().value().dtype() == DType::uint8);
  CHECK(view(DType::complex64).bits().value().dtype() == DType::uint64);
  CHECK(!view(DType::complex64, TensorView::conjugate).bits().value().is_conjugate());
  CHECK(view(DType::float32, TensorView::foreign_order).bits().value().is_foreign_byte_order());
  CHECK(view(DType::complex128).bits().error().message == "complex128 is wider than any integer");
}

TEST_CASE_FIXTURE(OfNumbers, "keeps a slice valid when the view it came from is gone") {
  const auto slice = [&] {
    const TensorView whole = numbers.view({4, 6, 6, 1});
    return whole.narrow(0, 3, 1).value();
  }();
  numbers.dims.assign(4, -1);
  CHECK(elements(slice) == std::vector{18, 19, 20, 21, 22, 23});
}

TEST_CASE_FIXTURE(Matrix, "keeps a slice valid when it is copied, assigned and sliced again") {
  TensorSlice slice = view.narrow(0, 0, 1).value();
  {
    const TensorSlice other = view.narrow(1, 0, 2).value();
    slice = other;
  }
  CHECK(list(slice.shape()) == std::vector<std::int64_t>{4, 2});
  const TensorSlice copy = slice;
  slice = slice.select(1, 1).value();
  CHECK(list(copy.strides()) == std::vector<std::int64_t>{6, 1});
  CHECK(elements(slice) == std::vector{1, 7, 13, 19});
}

TEST_CASE("slices nothing of an empty tensor, whatever its strides") {
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  Numbers numbers;
  const TensorView view = numbers.view({0, 12, huge, huge});
  CHECK(view.narrow(1, 11, 1).value().data() == nullptr);
  CHECK(view.narrow(1, 1, 5, 2).value().numel() == 0);
  CHECK(view.select(1, 11).value().bytes().empty());
}

TEST_CASE("is empty until it is assigned") {
  TensorView view;
  CHECK(view.numel() == 0);
  CHECK(view.bytes().empty());
  Numbers numbers;
  view = numbers.view({2, 1});
  CHECK(elements(view) == std::vector{0, 1});
}

TEST_CASE_FIXTURE(Matrix, "selects a row and an element") {
  CHECK(elements(view.select(0, 2).value()) == std::vector{12, 13, 14, 15, 16, 17});
  CHECK(elements(view.select(1, 5).value()) == std::vector{5, 11, 17, 23});
  const TensorSlice one = view.select(0, 1).value().select(0, 2).value();
  CHECK(one.rank() == 0);
  CHECK(elements(one) == std::vector{8});
}

TEST_CASE_FIXTURE(OfNumbers, "narrows to nothing") {
  const TensorSlice none = numbers.view({4, 6, 6, 1}).narrow(0, 4, 0).value();
  CHECK(none.numel() == 0);
  CHECK(none.data() == nullptr);
  CHECK(none.bytes().empty());
}

TEST_CASE_FIXTURE(Matrix, "refuses slices out of range") {
  for (const auto& bad :
       {view.narrow(2, 0, 1), view.narrow(0, -1, 1), view.narrow(0, 0, 5), view.narrow(0, 4, 1),
        view.narrow(0, 1, -1), view.narrow(0, 2, std::numeric_limits<std::int64_t>::max()),
        view.select(0, 4), view.select(0, -1), view.select(2, 0)}) {
    REQUIRE(!bad.has_value());
    CHECK(bad.error().code == ErrorCode::invalid_argument);
  }
}

TEST_CASE_FIXTURE(OfNumbers, "refuses to slice more dimensions than a view can carry") {
  const TensorView view = numbers.view(std::vector<std::int64_t>(18, 1));
  const auto slice = view.narrow(0, 0, 1);
  REQUIRE(!slice.has_value());
  CHECK(slice.error().message.find("rank 9") != std::string::npos);
}

TEST_CASE_FIXTURE(OfNumbers, "says what an element type reads as") {
  const auto refusal = [&]<class T>(DType dtype, T) {
    return numbers.view({2, 1}, 0, dtype).as<T>().error().message;
  };
  CHECK(refusal(DType::float16, 0.0f) ==
        "float16 reads as weightmap::float16 (half.hpp) or std::uint16_t, not as float");
  CHECK(
      refusal(DType::float8_e4m3fn, 0.0) ==
      "float8_e4m3fn reads as weightmap::float8_e4m3fn (half.hpp), std::uint8_t or std::byte, not "
      "as double");
  CHECK(refusal(DType::float32, bfloat16{}) ==
        "float32 reads as float, not as a type for bfloat16");
  CHECK(refusal(DType::boolean, std::int8_t{}) ==
        "bool reads as std::uint8_t or std::byte, not as std::int8_t");
  CHECK(refusal(DType::complex64, std::complex<double>{}) ==
        "complex64 reads as std::complex<float>, not as std::complex<double>");
  CHECK(refusal(DType::qint32, std::byte{}) == "qint32 reads as std::int32_t, not as std::byte");
  CHECK(numbers.view({2, 3}).as<std::int32_t>().error().message ==
        "the tensor is not contiguous; gather() copies its elements in order, and data() with "
        "strides() reaches them where they are");
}

// A type of somebody else.
struct Half {
  std::uint16_t raw;
};
template <>
inline constexpr std::optional<DType> weightmap::element_type_of<Half> = DType::float16;

TEST_CASE("reads halves as values, and as another's type that says which elements it is") {
  const std::uint16_t one_and_two[] = {0x3C00, 0x4000};
  const std::int64_t dims[] = {2, 1};
  const TensorView view(DType::float16, 1, dims, reinterpret_cast<const std::byte*>(one_and_two), 4,
                        0);
  CHECK(view.as<float16>().value()[1] == 2.0f);
  CHECK(view.as<Half>().value()[0].raw == 0x3C00);
  CHECK(view.as<std::uint16_t>().value()[0] == 0x3C00);
  CHECK(!view.as<bfloat16>());
}

TEST_CASE_FIXTURE(OfNumbers, "refuses as() of another type, of gaps, of odd addresses") {
  CHECK(!numbers.view({24, 1}).as<float>());
  CHECK(!numbers.view({24, 1}).as<std::uint32_t>());
  CHECK(!numbers.view({12, 2}).as<std::int32_t>());
  const std::int64_t dims[] = {2, 1};
  const TensorView odd(DType::int32, 1, dims, reinterpret_cast<std::byte*>(&numbers) + 1, 8, 0);
  CHECK(odd.as<std::int32_t>().error().message.find("multiple of 4") != std::string::npos);
}

TEST_CASE("never reads a bool as C++ bool, but as bytes") {
  CHECK(reads_as<std::uint8_t>(DType::boolean));
  CHECK(reads_as<std::uint16_t>(DType::bfloat16));
  CHECK(!reads_as<std::uint16_t>(DType::int16));
  CHECK(!reads_as<std::uint8_t>(DType::int8));
}

TEST_CASE_FIXTURE(OfNumbers, "hands out foreign byte order only through gather(), swapped") {
  const TensorView view = numbers.view({2, 1}, TensorView::foreign_order);
  CHECK(view.data() == nullptr);
  CHECK(view.bytes().empty());
  CHECK(view.as<std::int32_t>().error().code == ErrorCode::unsupported);
  CHECK(elements(view) == std::vector{0, 0x01000000});
  CHECK(elements(view.select(0, 1).value()) == std::vector{0x01000000});
  CHECK(view.select(0, 1).value().data() == nullptr);
}

TEST_CASE_FIXTURE(OfNumbers, "swaps complex numbers by their halves") {
  const TensorView view = numbers.view({1, 1}, TensorView::foreign_order, DType::complex64);
  std::array<std::uint8_t, 8> out{};
  REQUIRE(view.narrow(0, 0, 1).value().gather(std::as_writable_bytes(std::span(out))));
  CHECK(out == std::array<std::uint8_t, 8>{0, 0, 0, 0, 0, 0, 0, 1});
}

TEST_CASE_FIXTURE(OfNumbers, "refuses to give stored values where a lazy bit is set") {
  for (unsigned flag : {TensorView::conjugate, TensorView::negative}) {
    const TensorView view = numbers.view({2, 1}, flag);
    std::array<std::byte, 8> out{};
    CHECK(view.gather(out).error().code == ErrorCode::unsupported);
    CHECK(view.as<std::int32_t>().error().code == ErrorCode::unsupported);
  }
}

TEST_CASE_FIXTURE(OfNumbers, "refuses to gather into a buffer of another size") {
  std::array<std::byte, 7> out{};
  CHECK(numbers.view({2, 1}).gather(out).error().code == ErrorCode::invalid_argument);
}

namespace {

// Three rows of two blocks each, whose bytes count up.
struct BlockRows {
  static constexpr std::int64_t dims[] = {3, 64, 64, 1};
  std::array<std::byte, 3 * 2 * 18> bytes;

  BlockRows() {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  }
  TensorView view(unsigned flags = 0) const {
    return {DType::q4_0, 2, dims, bytes.data(), bytes.size(), flags};
  }
};

struct Q4Block {
  std::uint8_t scale[2];
  std::uint8_t halves[16];
};

// The numbers of the first and the last byte.
std::string ends_of(std::span<const std::byte> bytes) {
  return std::to_string(std::to_integer<int>(bytes.front())) + " to " +
         std::to_string(std::to_integer<int>(bytes.back()));
}

struct Blocks {
  BlockRows rows;
};

}  // namespace

TEST_CASE_FIXTURE(Blocks, "counts the bytes of blocks") {
  const TensorView view = rows.view();
  CHECK(view.numel() == 192);
  CHECK(view.nbytes() == 108);
  CHECK(view.is_contiguous());
  CHECK(block_of(DType::float32).elements == 1);
  CHECK(block_of(DType::float32).bytes == 4);
  CHECK(bytes_of(DType::float32, 3) == 12);
  CHECK(bytes_of(DType::float6_e2m3, 8) == 6);
}

TEST_CASE_FIXTURE(Blocks, "gives blocks as the structs of others") {
  const std::span<const Q4Block> blocks = rows.view().blocks<Q4Block>().value();
  CHECK(blocks.size() == 6);
  CHECK(blocks[1].scale[0] == 18);
  CHECK(rows.view().blocks<std::uint32_t>().error().message ==
        "q4_0 reads as blocks of 18 bytes, not of 4");
  const std::int64_t dims[] = {27, 1};
  const TensorView floats(DType::float32, 1, dims, rows.bytes.data(), rows.bytes.size(), 0);
  CHECK(floats.blocks<Q4Block>().error().message ==
        "float32 has no blocks, so it does not read as some, not of 18");
  CHECK(rows.view().as<std::uint8_t>().error().message ==
        "q4_0 reads as blocks of 18 bytes, not as std::uint8_t");
}

TEST_CASE_FIXTURE(Blocks, "shows blocks as bytes") {
  const TensorSlice bytes = rows.view().bits().value();
  CHECK(bytes.dtype() == DType::uint8);
  CHECK(bytes.shape()[0] == 3);
  CHECK(bytes.shape()[1] == 36);
  CHECK(bytes.strides()[0] == 36);
  CHECK(bytes.strides()[1] == 1);
  CHECK(bytes.data() == rows.bytes.data());
  CHECK(bytes.nbytes() == 108);
}

TEST_CASE("shows blocks as bytes where a stride that nothing uses would not fit in bytes") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 32 * 32;
  const BlockRows rows;
  const std::int64_t one_row[] = {1, 64, most, 1};
  const TensorView row(DType::q8_0, 2, one_row, rows.bytes.data(), 68, 0);
  CHECK(ends_of(row.bits().value().bytes()) == "0 to 67");
}

TEST_CASE("refuses the bytes of an empty tensor whose rows would have too many") {
  const std::int64_t dims[] = {0, std::numeric_limits<std::int64_t>::max() / 32 * 32, 0, 1};
  CHECK(TensorView(DType::q4_0, 2, dims, nullptr, 0, 0).bits().value().nbytes() == 0);
  CHECK(TensorView(DType::q8_0, 2, dims, nullptr, 0, 0).bits().error().message ==
        "the rows of the empty tensor have more bytes than 63 bits count");
}

TEST_CASE_FIXTURE(Blocks, "narrows rows of blocks, and takes one of them") {
  const TensorSlice two = rows.view().narrow(0, 1, 2).value();
  CHECK(ends_of(two.bytes()) == "36 to 107");
  CHECK(two.nbytes() == 72);
  const TensorSlice row = rows.view().select(0, 2).value();
  CHECK(ends_of(row.bytes()) == "72 to 107");
  const TensorSlice every_other = rows.view().narrow(0, 0, 2, 2).value();
  CHECK(every_other.strides()[0] == 128);
  CHECK(ends_of(every_other.bytes()) == "0 to 107");
  std::array<std::byte, 72> out;
  CHECK(every_other.gather(out));
  CHECK(ends_of(std::span(out).first(36)) == "0 to 35");
  CHECK(ends_of(std::span(out).last(36)) == "72 to 107");
}

TEST_CASE_FIXTURE(Blocks, "narrows a row to whole blocks only") {
  const TensorSlice right = rows.view().narrow(1, 32, 32).value();
  CHECK(ends_of(right.bytes()) == "18 to 107");
  CHECK(right.nbytes() == 54);
  std::array<std::byte, 54> out;
  CHECK(right.gather(out));
  CHECK(ends_of(std::span(out).first(18)) == "18 to 35");
  CHECK(ends_of(std::span(out).last(18)) == "90 to 107");
  const TensorSlice bytes = right.bits().value();
  CHECK(bytes.shape()[1] == 18);
  CHECK(bytes.strides()[0] == 36);
  constexpr const char* whole =
      "a row of q4_0 is narrowed to whole blocks of 32 elements, by a step of 1";
  CHECK(rows.view().narrow(1, 16, 32).error().message == whole);
  CHECK(rows.view().narrow(1, 0, 31).error().message == whole);
  CHECK(rows.view().narrow(1, 0, 32, 2).error().message == whole);
  CHECK(rows.view().narrow(1, 0, 0).value().numel() == 0);
  CHECK(rows.view().select(1, 0).error().message ==
        "one element of q4_0 cannot be taken out of its block");
}

TEST_CASE_FIXTURE(Blocks,
                  "does not convert blocks of the other byte order, but shows their bytes") {
  const TensorView view = rows.view(TensorView::foreign_order);
  std::array<std::byte, 108> out;
  constexpr const char* refusal =
      "the tensor has blocks in the other byte order, whose fields are not converted; bits() gives "
      "their bytes";
  CHECK(view.gather(out).error().message == refusal);
  CHECK(view.blocks<Q4Block>().error().message == refusal);
  CHECK(view.data() == nullptr);
  CHECK(ends_of(view.bits().value().bytes()) == "0 to 107");
}

TEST_CASE_FIXTURE(Blocks, "hands out blocks in pieces") {
  const TensorSlice right = rows.view().narrow(1, 32, 32).value();
  std::vector<std::byte> all;
  const auto take = [&all](std::span<const std::byte> piece) {
    CHECK(piece.size() <= 20);
    all.insert(all.end(), piece.begin(), piece.end());
    return true;
  };
  CHECK(for_each_piece(right, take, 20));
  CHECK(all.size() == 54);
  CHECK(ends_of(std::span(all).last(18)) == "90 to 107");
  CHECK(!for_each_piece(rows.view(TensorView::foreign_order), take, 20));
}

TEST_CASE_FIXTURE(
    OfNumbers, "hands out elements of any strides in pieces, however many dimensions there are") {
  std::vector<std::int64_t> dims(18, 2);  // nine dimensions
  for (std::size_t dim = 0; dim < 9; ++dim) dims[9 + dim] = static_cast<std::int64_t>(dim % 3);
  for (const unsigned flags : {0U, unsigned{TensorView::foreign_order}}) {
    const TensorView view = numbers.view(dims, flags);
    std::vector<std::int32_t> all;
    REQUIRE(for_each_piece(
                view,
                [&](std::span<const std::byte> piece) {
                  CHECK(piece.size() <= 20);
                  for (std::size_t at = 0; at < piece.size(); at += 4)
                    all.push_back(load_element<std::int32_t>(&piece[at]));
                  return true;
                },
                20)
                .has_value());
    CHECK(all == elements(view));
    REQUIRE(all.size() == 512);
    for (std::size_t i = 0; i < 512; ++i) {
      std::int32_t sum = 0;
      for (std::size_t dim = 0; dim < 9; ++dim)
        sum += static_cast<std::int32_t>((i >> (8 - dim) & 1) * (dim % 3));
      CHECK(all[i] == (flags == 0 ? sum : sum << 24));
    }
  }
}
