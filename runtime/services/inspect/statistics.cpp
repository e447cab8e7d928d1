#include "runtime/services/inspect/statistics.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/element_walk.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/inspect/summary.hpp"
#include "runtime/services/inspect/take_in.hpp"
#include "weightmap/half.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {
namespace inspect {
namespace {

// Counts how often the strides repeat each element of the storage: from the first to the last one
// of the tensor; their sum is the number of its elements. The time is proportional to these times
// the rank, whatever the sizes are. Precondition: the tensor has elements.
Result<std::vector<std::uint64_t>> multiplicities(const TensorView& view,
                                                  const Progress& progress) {
  std::vector<std::uint64_t> counts(stored_elements(view));
  std::uint64_t repeats = 1;  // of all elements, by dimensions of stride 0
  counts[0] = 1;
  std::size_t reached = 1;  // the counts from here on are 0
  for (std::size_t dim = 0; dim < view.rank(); ++dim) {
    const auto size = static_cast<std::size_t>(view.shape()[dim]);
    const auto stride = static_cast<std::size_t>(view.strides()[dim]);
    if (size == 1) continue;
    if (stride == 0) {
      repeats *= size;  // fits, as view.numel() does
      continue;
    }
    TRY(go_on(progress, 0, view.stored_bytes().size()));
    // Sums the counts at 0, 1 ... size - 1 strides before each element: adds all multiples of the
    // stride before, then subtracts those that are too far back, from the end on.
    reached += (size - 1) * stride;
    for (std::size_t i = stride; i < reached; ++i) counts[i] += counts[i - stride];
    for (std::size_t i = reached; i-- > size * stride;) counts[i] -= counts[i - size * stride];
  }
  for (std::uint64_t& count : counts) count *= repeats;
  return counts;
}

// Processes elements in blocks, each converted to T.
template <class Stored, class T, class Convert>
class ByBlock {
 public:
  static constexpr bool is_exact = false;  // depends on the order of the blocks

  explicit ByBlock(const Convert& convert) : convert_(convert) {}

  void add(std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
      const std::size_t count = std::min(bytes.size() / sizeof(Stored), block_elements);
      for (std::size_t i = 0; i < count; ++i)
        block_[i] = convert_(load_element<Stored>(bytes.data() + i * sizeof(Stored)));
      summary_.add(std::span<const T>(block_.data(), count));
      bytes = bytes.subspan(count * sizeof(Stored));
    }
  }
  void add(const ByBlock& part) noexcept { summary_.add(part.summary_); }
  TensorStatistics result() { return summary_.result(); }

 private:
  const Convert& convert_;
  Summary<T> summary_;
  std::array<T, block_elements> block_;
};

// Counts each bit pattern at memory speed, and adds the values of the patterns at the end.
template <class Stored, class T, class Convert>
class ByValue {
 public:
  static constexpr bool is_exact = true;

  explicit ByValue(const Convert& convert) : convert_(convert), counts_(patterns) {}

  void add(std::span<const std::byte> bytes) noexcept {
    const std::size_t count = bytes.size() / sizeof(Stored);
    uncollected_ += count;
    std::size_t i = 0;
    // Reads words and alternates between tables, since equal neighbours would stall on one counter.
    for (; i + word <= count; i += word) {
      auto bits = load_element<std::uint64_t>(bytes.data() + i * sizeof(Stored));
      for (std::size_t part = 0; part < word; ++part, bits >>= 8 * sizeof(Stored))
        ++recent_[part % tables][bits % patterns];
    }
    for (; i < count; ++i) ++recent_[0][load_element<Stored>(bytes.data() + i * sizeof(Stored))];
    if (uncollected_ > std::numeric_limits<std::uint32_t>::max() / 2) collect();
  }

  void add(ByValue& part) noexcept {
    part.collect();
    collect();
    for (std::size_t bits = 0; bits < patterns; ++bits) counts_[bits] += part.counts_[bits];
  }

  TensorStatistics result() {
    collect();
    std::vector<typename Summary<T>::Value> values;
    for (std::size_t bits = 0; bits < patterns; ++bits)
      if (counts_[bits] > 0)
        values.emplace_back(convert_(static_cast<Stored>(bits)), counts_[bits]);
    Summary<T> summary;
    summary.add(std::span<const typename Summary<T>::Value>(values));
    return summary.result();
  }

 private:
  static constexpr std::size_t patterns = std::size_t{1} << 8 * sizeof(Stored);
  static constexpr std::size_t word = sizeof(std::uint64_t) / sizeof(Stored);  // elements
  static constexpr std::size_t tables = 4;
  using Counts = std::array<std::uint32_t, patterns>;

  void collect() noexcept {
    for (Counts& recent : recent_) {
      for (std::size_t bits = 0; bits < patterns; ++bits) counts_[bits] += recent[bits];
      recent.fill(0);
    }
    uncollected_ = 0;
  }

  const Convert& convert_;
  std::array<Counts, tables> recent_{};
  std::uint64_t uncollected_ = 0;
  std::vector<std::uint64_t> counts_;
};

template <class Work, class Make>
Result<TensorStatistics> run(const TensorView& view, const Progress& progress, const Make& make) {
  const std::unique_ptr<Work> work = make();
  Following following{progress, view.nbytes()};
  const auto take = [&](std::span<const std::byte> bytes) {
    if (bytes.size() < divided_from)
      take_in(bytes, *work, following, true);
    else
      take_in_parts<Work>(bytes, *work, following, make);
    return following.going.has_value();
  };
  TRY(for_each_piece(view, take, piece_bytes));
  TRY(following.going);
  return work->result();
}

// Processes the elements of the storage, weighted by their repetitions in the tensor.
template <class Stored, class T, class Convert>
class Weighted {
 public:
  Weighted(const Convert& convert, std::span<const std::uint64_t> counts)
      : convert_(convert), counts_(counts) {}

  void add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::size_t count = std::min(bytes.size() / sizeof(Stored), block_elements);
      values_.clear();
      for (std::size_t i = 0; i < count; ++i)
        if (counts_[i] > 0)
          values_.emplace_back(convert_(load_element<Stored>(&bytes[i * sizeof(Stored)])),
                               counts_[i]);
      summary_.add(std::span<const typename Summary<T>::Value>(values_));
      bytes = bytes.subspan(count * sizeof(Stored));
      counts_ = counts_.subspan(count);
    }
  }
  TensorStatistics result() const { return summary_.result(); }

 private:
  const Convert& convert_;
  std::span<const std::uint64_t> counts_;  // of the remaining elements
  std::vector<typename Summary<T>::Value> values_;
  Summary<T> summary_;
};

template <class Stored, class T, class Convert>
Result<TensorStatistics> run_weighted(const TensorView& view, const Progress& progress,
                                      const Convert& convert) {
  TRY_ASSIGN(const std::vector<std::uint64_t> counts, multiplicities(view, progress));
  const std::span<const std::byte> bytes = view.stored_bytes();
  const std::int64_t dims[2] = {static_cast<std::int64_t>(counts.size()), 1};
  const TensorView stored(view.dtype(), 1, dims, bytes.data(), bytes.size(), view.flags());
  Weighted<Stored, T, Convert> work(convert, counts);
  Following following{progress, bytes.size()};
  const auto take = [&](std::span<const std::byte> piece) {
    take_in(piece, work, following, true);
    return following.going.has_value();
  };
  TRY(for_each_piece(stored, take, piece_bytes));
  TRY(following.going);
  return work.result();
}

struct Question {
  const TensorView& view;
  const Progress& progress;
  std::uint64_t counted_from;

  template <class Stored, class T, class Convert>
  Result<TensorStatistics> answer(const Convert& convert) const {
    if (view.numel() > stored_elements(view))
      return run_weighted<Stored, T>(view, progress, convert);
    if constexpr (sizeof(Stored) <= 2) {
      if (view.numel() >= counted_from) return run<ByValue<Stored, T, Convert>>(convert);
    }
    return run<ByBlock<Stored, T, Convert>>(convert);
  }

  template <class Work, class Convert>
  Result<TensorStatistics> run(const Convert& convert) const {
    return inspect::run<Work>(view, progress, [&] { return std::make_unique<Work>(convert); });
  }

  // For integers, T is the type of at least 32 bits to which stored values are converted.
  template <class Stored, class T = Stored>
  Result<TensorStatistics> of_native() const {
    using Unsigned =
        std::make_unsigned_t<std::conditional_t<std::is_integral_v<Stored>, Stored, int>>;
    if constexpr (sizeof(Stored) <= 2)
      return answer<Unsigned, T>([](Unsigned bits) { return T{static_cast<Stored>(bits)}; });
    else
      return answer<Stored, T>([](Stored value) { return value; });
  }

  Result<TensorStatistics> of_bools() const {
    return answer<std::uint8_t, std::uint32_t>(
        [](std::uint8_t byte) { return byte == 0 ? 0U : 1U; });
  }

  template <class T>
  Result<TensorStatistics> of_small_floats() const {
    using Bits = decltype(T{}.bits());
    return answer<Bits, float>([](Bits bits) { return static_cast<float>(T::from_bits(bits)); });
  }

  Result<TensorStatistics> refuse() const {
    const DType dtype = view.dtype();
    const bool complex =
        dtype == DType::complex128 || dtype == DType::complex64 || dtype == DType::complex32;
    return failure(ErrorCode::unsupported,
                   std::string(to_string(dtype)) +
                       (complex ? " tensors have no statistics: complex numbers have no order"
                                : " tensors have no statistics: what they store are not their "
                                  "values"));
  }
};

Result<TensorStatistics> ask(const Question& question) {
  const TensorView& view = question.view;
  switch (view.dtype()) {
    case DType::float64:
      return question.of_native<double>();
    case DType::float32:
      return question.of_native<float>();
    case DType::int64:
      return question.of_native<std::int64_t>();
    case DType::int32:
      return question.of_native<std::int32_t>();
    case DType::int16:
      return question.of_native<std::int16_t, std::int32_t>();
    case DType::int8:
      return question.of_native<std::int8_t, std::int32_t>();
    case DType::uint64:
      return question.of_native<std::uint64_t>();
    case DType::uint32:
      return question.of_native<std::uint32_t>();
    case DType::uint16:
      return question.of_native<std::uint16_t, std::uint32_t>();
    case DType::uint8:
      return question.of_native<std::uint8_t, std::uint32_t>();
    case DType::boolean:
      return question.of_bools();
    default:
      break;
  }
  Result<TensorStatistics> found;
  const auto answer = [&](auto type) { found = question.of_small_floats<decltype(type)>(); };
  return with_small_float(view.dtype(), answer) ? found : question.refuse();
}

}  // namespace

Result<TensorStatistics> statistics(const TensorView& view, const Progress& progress,
                                    std::uint64_t counted_from) {
  TRY(view.check_no_fault());
  return ask({view, progress, counted_from});
}

}  // namespace inspect

Result<TensorStatistics> statistics(const TensorView& view, const Progress& progress) {
  // Fewer elements take less time than a pass over tables of 65536 counts.
  constexpr std::uint64_t counted_from = 1 << 16;
  return inspect::statistics(view, progress, counted_from);
}

}  // namespace weightmap
