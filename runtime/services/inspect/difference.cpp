#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/services/inspect/element_pairs.hpp"
#include "runtime/services/inspect/take_in.hpp"
#include "weightmap/half.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {
namespace inspect {
namespace {

constexpr std::size_t compared_elements = 1024;
constexpr std::size_t lanes = 8;  // for vectorisation
static_assert(compared_elements % lanes == 0);

// T is double, or std::uint64_t for 64-bit integers.
template <class T>
struct Findings {
  std::uint64_t differing = 0;
  std::uint64_t other_value = 0;  // of the differing ones
  std::uint64_t not_finite = 0;   // of the differing ones
  T largest = 0;
  std::uint64_t largest_at = 0;

  void take(T apart, std::uint64_t index) noexcept {
    if (apart < largest || (apart == largest && index >= largest_at)) return;
    largest = apart;
    largest_at = index;
  }
  void add(const Findings& part) noexcept {
    differing += part.differing;
    other_value += part.other_value;
    not_finite += part.not_finite;
    if (part.largest > 0) take(part.largest, part.largest_at);
  }
};

// Consecutive elements of both tensors. `index` is the first one's.
struct Block {
  const std::byte* a;
  const std::byte* b;
  std::size_t count;
  std::uint64_t index;
};

using Decode = void (*)(const std::byte* from, std::size_t count, double* to);

template <class Stored>
void decode_as(const std::byte* from, std::size_t count, double* to) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto element = load_element<Stored>(from + i * sizeof(Stored));
    if constexpr (std::is_arithmetic_v<Stored>)
      to[i] = static_cast<double>(element);
    else
      to[i] = static_cast<double>(static_cast<float>(element));
  }
}

void decode_bools(const std::byte* from, std::size_t count, double* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i] == std::byte{0} ? 0 : 1;
}

Decode decoder_of_floats(DType dtype) noexcept {
  if (dtype == DType::float64) return decode_as<double>;
  if (dtype == DType::float32) return decode_as<float>;
  Decode decode = nullptr;
  with_small_float(dtype, [&](auto type) { decode = decode_as<decltype(type)>; });
  return decode;
}

// Converts elements to doubles, `parts` for each. There is none for 64-bit integers, which exceed
// double's precision, and for types whose bits alone are known.
struct Decoder {
  Decode decode = nullptr;
  std::size_t parts = 1;
};

Decoder decoder_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::complex128:
      return {decode_as<double>, 2};
    case DType::complex64:
      return {decode_as<float>, 2};
    case DType::complex32:
      return {decode_as<float16>, 2};
    case DType::int32:
      return {decode_as<std::int32_t>};
    case DType::int16:
      return {decode_as<std::int16_t>};
    case DType::int8:
      return {decode_as<std::int8_t>};
    case DType::uint32:
      return {decode_as<std::uint32_t>};
    case DType::uint16:
      return {decode_as<std::uint16_t>};
    case DType::uint8:
      return {decode_as<std::uint8_t>};
    case DType::boolean:
      return {decode_bools};
    default:
      return {decoder_of_floats(dtype)};
  }
}

bool is_same(double x, double y) noexcept { return x == y || (std::isnan(x) && std::isnan(y)); }

// A comparison is made for the types of both tensors. It has T and a member `compare`, which adds
// the elements that differ in value.

class Decoded {
 public:
  using T = double;
  Decoded(DType a, DType b)
      : decode_a_(decoder_of(a).decode),
        decode_b_(decoder_of(b).decode),
        parts_(decoder_of(a).parts),
        x_(parts_ * compared_elements),
        y_(parts_ * compared_elements) {}

  void compare(const Block& block, Findings<double>& found) noexcept {
    decode_a_(block.a, parts_ * block.count, x_.data());
    decode_b_(block.b, parts_ * block.count, y_.data());
    if (parts_ > 1) return compare_one_by_one(block, found);
    std::size_t end = block.count;
    for (; end % lanes != 0; ++end) x_[end] = y_[end] = 0;
    std::array<double, lanes> largest{};
    std::array<double, lanes> none{};  // NaN after a difference that is not finite
    std::array<std::uint64_t, lanes> other{};
    for (std::size_t i = 0; i < end; i += lanes)
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const double apart = std::abs(x_[i + lane] - y_[i + lane]);
        largest[lane] = apart > largest[lane] ? apart : largest[lane];
        none[lane] += apart - apart;
        other[lane] += apart == 0 ? 0 : 1;
      }
    for (const double sum : none)
      if (sum != 0) return compare_one_by_one(block, found);
    for (const std::uint64_t count : other) found.other_value += count;
    const double most = *std::max_element(largest.begin(), largest.end());
    if (most > found.largest) found.take(most, block.index + find(most));
  }

 private:
  // Precondition: two elements of the block have this distance.
  std::size_t find(double apart) const noexcept {
    std::size_t i = 0;
    while (std::abs(x_[i] - y_[i]) != apart) ++i;
    return i;
  }

  void compare_one_by_one(const Block& block, Findings<double>& found) const noexcept {
    for (std::size_t i = 0; i < block.count; ++i) {
      bool same = true;
      bool finite = true;
      double apart = 0;
      for (std::size_t part = parts_ * i; part < parts_ * (i + 1); ++part) {
        same = same && is_same(x_[part], y_[part]);
        finite = finite && std::isfinite(x_[part]) && std::isfinite(y_[part]);
        apart = std::hypot(apart, x_[part] - y_[part]);
      }
      if (same) continue;
      ++found.other_value;
      if (finite)
        found.take(apart, block.index + i);
      else
        ++found.not_finite;
    }
  }

  Decode decode_a_;
  Decode decode_b_;
  std::size_t parts_;
  std::vector<double> x_;
  std::vector<double> y_;
};

template <class Integer>
struct WideIntegers {
  using T = std::uint64_t;
  WideIntegers(DType, DType) {}

  void compare(const Block& block, Findings<std::uint64_t>& found) const noexcept {
    for (std::size_t i = 0; i < block.count; ++i) {
      const auto x = load_element<Integer>(block.a + i * sizeof(Integer));
      const auto y = load_element<Integer>(block.b + i * sizeof(Integer));
      if (x == y) continue;
      ++found.other_value;
      const std::uint64_t apart = static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(y);
      found.take(x > y ? apart : 0 - apart, block.index + i);
    }
  }
};

using CountBits = std::uint64_t (*)(const Block& block);

template <class Bits>
std::uint64_t count_bits(const Block& block) {
  std::uint64_t differing = 0;
  for (std::size_t i = 0; i < block.count; ++i)
    differing += load_element<Bits>(block.a + i * sizeof(Bits)) ==
                         load_element<Bits>(block.b + i * sizeof(Bits))
                     ? 0
                     : 1;
  return differing;
}

CountBits counter_of(std::size_t size) noexcept {
  switch (size) {
    case 16:
      return count_bits<std::array<std::uint64_t, 2>>;
    case 8:
      return count_bits<std::uint64_t>;
    case 4:
      return count_bits<std::uint32_t>;
    case 2:
      return count_bits<std::uint16_t>;
    default:
      return count_bits<std::uint8_t>;
  }
}

// For types whose bits alone are known.
struct OnlyBits {
  using T = double;
  OnlyBits(DType a, DType) : count(counter_of(element_size(a))) {}

  void compare(const Block& block, Findings<double>& found) const noexcept {
    found.other_value += count(block);
  }

  CountBits count;
};

// Bytes of the same elements of both tensors, and the index of the first element.
struct BytesOfBoth {
  std::span<const std::byte> a;
  std::span<const std::byte> b;
  std::uint64_t index = 0;
};

// Takes parts of a piece's bytes of the first tensor, and finds those of the second.
template <class Numbers>
class Comparison {
 public:
  static constexpr bool is_exact = true;  // independent of the order of the blocks

  Comparison(DType a, DType b, const BytesOfBoth& both)
      : both_(both),
        size_a_(element_size(a)),
        size_b_(element_size(b)),
        one_type_(a == b),
        count_bits_(counter_of(size_a_)),
        numbers_(a, b) {}

  void add(std::span<const std::byte> bytes) noexcept {
    std::size_t at = static_cast<std::size_t>(bytes.data() - both_.a.data()) / size_a_;
    for (std::size_t left = bytes.size() / size_a_; left > 0;) {
      const std::size_t count = std::min(left, compared_elements);
      add({both_.a.data() + at * size_a_, both_.b.data() + at * size_b_, count, both_.index + at});
      at += count;
      left -= count;
    }
  }
  void add(const Comparison& part) noexcept { found_.add(part.found_); }
  const Findings<typename Numbers::T>& found() const noexcept { return found_; }

 private:
  void add(const Block& block) noexcept {
    if (one_type_) {
      if (std::memcmp(block.a, block.b, block.count * size_a_) == 0) return;
      found_.differing += count_bits_(block);
    }
    const std::uint64_t before = found_.other_value;
    numbers_.compare(block, found_);
    if (!one_type_) found_.differing += found_.other_value - before;
  }

  const BytesOfBoth& both_;
  const std::size_t size_a_;
  const std::size_t size_b_;
  const bool one_type_;
  CountBits count_bits_;
  Numbers numbers_;
  Findings<typename Numbers::T> found_;
};

// Two tensors of one shape without lazy bits.
struct WhatToCompare {
  const TensorView& a;
  const TensorView& b;
  const Progress& progress;
  std::uint64_t largest_at = 0;  // of the result

  template <class Numbers>
  Result<TensorDifference> answer() {
    using Work = Comparison<Numbers>;
    BytesOfBoth both;
    const auto make = [&] { return std::make_unique<Work>(a.dtype(), b.dtype(), both); };
    const std::unique_ptr<Work> work = make();
    Following following{progress, a.nbytes()};
    const auto take = [&](std::span<const std::byte> bytes_a, std::span<const std::byte> bytes_b) {
      both.a = bytes_a;
      both.b = bytes_b;
      if (bytes_a.size() < divided_from)
        take_in(bytes_a, *work, following, true);
      else
        take_in_parts<Work>(bytes_a, *work, following, make);
      both.index += bytes_a.size() / element_size(a.dtype());
      return following.going.has_value();
    };
    TRY(for_each_pair(a, b, take));
    TRY(following.going);
    return describe(work->found());
  }

  template <class T>
  TensorDifference describe(const Findings<T>& found) {
    TensorDifference all;
    all.count = a.numel();
    all.differing = found.differing;
    all.same_value = found.differing - found.other_value;
    all.not_finite = found.not_finite;
    if (found.largest == 0) return all;
    largest_at = found.largest_at;
    if (decoder_of(a.dtype()).parts == 1 && decoder_of_floats(a.dtype()) == nullptr)
      all.largest = static_cast<std::uint64_t>(found.largest);
    else
      all.largest = found.largest;
    return all;
  }
};

Result<TensorDifference> compare_all(WhatToCompare& question) {
  const DType dtype = question.a.dtype();
  if (dtype == DType::int64) return question.answer<WideIntegers<std::int64_t>>();
  if (dtype == DType::uint64) return question.answer<WideIntegers<std::uint64_t>>();
  if (decoder_of(dtype).decode != nullptr) return question.answer<Decoded>();
  return question.answer<OnlyBits>();
}

unsigned lazy_bits(const TensorView& view) noexcept {
  return view.flags() & (TensorView::conjugate | TensorView::negative);
}

// Returns the stored elements of a tensor, without its lazy bits.
TensorView stored(const TensorView& view) noexcept {
  const std::span<const std::byte> bytes = view.stored_bytes();
  return {
      view.dtype(),        view.rank(),
      view.shape().data(), bytes.data(),
      bytes.size(),        view.flags() & (TensorView::foreign_order | TensorView::any_repeats)};
}

// Converts `index` among the distinct elements of both tensors to an index along each dimension.
std::vector<std::int64_t> place_of(std::uint64_t index, const TensorView& a, const TensorView& b) {
  std::vector<std::int64_t> place(a.rank(), 0);
  for (std::size_t dim = a.rank(); dim-- > 0;) {
    if (Distinct::repeats_along(dim, a, b)) continue;
    const auto size = static_cast<std::uint64_t>(a.shape()[dim]);
    place[dim] = static_cast<std::int64_t>(index % size);
    index /= size;
  }
  return place;
}

bool have_one_shape(const TensorView& a, const TensorView& b) noexcept {
  return std::ranges::equal(a.shape(), b.shape());
}

Result<void> check_comparable(const TensorView& a, const TensorView& b) {
  if (!have_one_shape(a, b))
    return failure(ErrorCode::invalid_argument, "tensors of different shapes cannot be compared");
  const bool are_floats =
      decoder_of_floats(a.dtype()) != nullptr && decoder_of_floats(b.dtype()) != nullptr;
  if (a.dtype() != b.dtype() && !are_floats)
    return failure(ErrorCode::unsupported, "elements of " + std::string(to_string(a.dtype())) +
                                               " and " + std::string(to_string(b.dtype())) +
                                               " are not compared: not both are floating point");
  if (lazy_bits(a) != lazy_bits(b))
    return failure(ErrorCode::unsupported,
                   "one tensor is a lazy conjugate or negative and the other is not, so what they "
                   "store is not compared");
  return {};
}

// True if equal strides repeat equal bytes, so that no elements differ, however many there are.
bool repeats_equal_bytes(const TensorView& a, const TensorView& b) {
  const std::uint64_t stored = stored_elements(a);
  return a.dtype() == b.dtype() && a.numel() > stored && stored == stored_elements(b) &&
         a.is_foreign_byte_order() == b.is_foreign_byte_order() &&
         std::ranges::equal(a.strides(), b.strides()) &&
         std::ranges::equal(a.stored_bytes(), b.stored_bytes());
}

// Compares only the bytes.
Result<TensorDifference> difference_of_blocks(const TensorView& a, const TensorView& b,
                                              const Progress& progress) {
  TRY_ASSIGN(const TensorSlice bytes_a, a.bits());
  TRY_ASSIGN(const TensorSlice bytes_b, b.bits());
  return WhatToCompare{bytes_a, bytes_b, progress}.answer<OnlyBits>();
}

}  // namespace
}  // namespace inspect

Result<TensorDifference> difference(const TensorView& a, const TensorView& b,
                                    const Progress& progress) {
  using namespace inspect;
  TRY(a.check_no_fault());
  TRY(b.check_no_fault());
  TRY(check_comparable(a, b));
  if (is_blocked(a.dtype())) return difference_of_blocks(a, b, progress);
  TensorDifference same;
  same.count = a.numel();
  if (repeats_equal_bytes(a, b)) return same;
  const Distinct distinct_a(stored(a), stored(b));
  const Distinct distinct_b(stored(b), stored(a));
  WhatToCompare question{distinct_a.view(), distinct_b.view(), progress};
  TRY_ASSIGN(TensorDifference found, compare_all(question));
  for (std::uint64_t* count :
       {&found.count, &found.differing, &found.same_value, &found.not_finite})
    *count *= distinct_a.repeats();
  if (found.largest) found.at = place_of(question.largest_at, a, b);
  return found;
}

Result<bool> same_bits(const TensorView& a, const TensorView& b, const Progress& progress) {
  using namespace inspect;
  TRY(a.check_no_fault());
  TRY(b.check_no_fault());
  if (a.dtype() != b.dtype() || !have_one_shape(a, b) || lazy_bits(a) != lazy_bits(b)) return false;
  if (is_blocked(a.dtype())) {
    TRY_ASSIGN(const TensorSlice bytes_a, a.bits());
    TRY_ASSIGN(const TensorSlice bytes_b, b.bits());
    return same_bits(bytes_a, bytes_b, progress);
  }
  if (repeats_equal_bytes(a, b)) return true;
  const Distinct distinct_a(stored(a), stored(b));
  const Distinct distinct_b(stored(b), stored(a));
  Following following{progress, distinct_a.view().nbytes()};
  bool same = true;
  const auto compare = [&](std::span<const std::byte> bytes_a, std::span<const std::byte> bytes_b) {
    for (std::size_t at = 0; at < bytes_a.size() && same && following.going;) {
      const std::size_t count = std::min<std::size_t>(bytes_a.size() - at, piece_bytes);
      same = std::memcmp(bytes_a.data() + at, bytes_b.data() + at, count) == 0;
      at += count;
      following.done += count;
      following.ask();
    }
    return same && following.going.has_value();
  };
  TRY(for_each_pair(distinct_a.view(), distinct_b.view(), compare));
  TRY(following.going);
  return same;
}

}  // namespace weightmap
