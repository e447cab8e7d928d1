#include "runtime/inspect/statistics.hpp"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"
#include "runtime/inspect/summary.hpp"
#include "weightmap/half.hpp"
#include "weightmap/tensor_pieces.hpp"

namespace weightmap {
namespace inspect {
namespace {

constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;

template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Elements in blocks, each turned into a T.
template <class Stored, class T, class Convert>
class ByBlock {
 public:
  explicit ByBlock(const Convert& convert) : convert_(convert) {}

  void add(std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
      const std::size_t count = std::min(bytes.size() / sizeof(Stored), block_elements);
      for (std::size_t i = 0; i < count; ++i)
        block_[i] = convert_(load<Stored>(bytes.data() + i * sizeof(Stored)));
      summary_.add(std::span<const T>(block_.data(), count));
      bytes = bytes.subspan(count * sizeof(Stored));
    }
  }
  TensorStatistics result() { return summary_.result(); }

 private:
  const Convert& convert_;
  Summary<T> summary_;
  std::array<T, block_elements> block_;
};

// Counts how often each pattern of bits occurs, which is as fast as memory is read, and takes in
// the values of those that do at the end.
template <class Stored, class T, class Convert>
class ByValue {
 public:
  explicit ByValue(const Convert& convert) : convert_(convert), counts_(patterns) {}

  void add(std::span<const std::byte> bytes) noexcept {
    const std::size_t count = bytes.size() / sizeof(Stored);
    uncollected_ += count;
    std::size_t i = 0;
    // Word by word, into tables that take turns: equal neighbours would wait for one another.
    for (; i + word <= count; i += word) {
      auto bits = load<std::uint64_t>(bytes.data() + i * sizeof(Stored));
      for (std::size_t part = 0; part < word; ++part, bits >>= 8 * sizeof(Stored))
        ++recent_[part % tables][bits % patterns];
    }
    for (; i < count; ++i) ++recent_[0][load<Stored>(bytes.data() + i * sizeof(Stored))];
    if (uncollected_ > std::numeric_limits<std::uint32_t>::max() / 2) collect();
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

// Piece by piece, so that somebody may follow or stop it.
template <class Work>
Result<TensorStatistics> run(const TensorView& view, const Progress& progress,
                             std::unique_ptr<Work> work) {
  Result<void> going = {};
  std::uint64_t done = 0;
  const auto take = [&](std::span<const std::byte> bytes) {
    while (!bytes.empty() && going) {
      const auto piece = bytes.first(std::min<std::size_t>(bytes.size(), piece_bytes));
      work->add(piece);
      bytes = bytes.subspan(piece.size());
      done += piece.size();
      going = go_on(progress, done, view.nbytes());
    }
    return going.has_value();
  };
  TRY(for_each_piece(view, take, piece_bytes));
  TRY(going);
  return work->result();
}

struct Question {
  const TensorView& view;
  const Progress& progress;
  std::uint64_t counted_from;

  template <class Stored, class T, class Convert>
  Result<TensorStatistics> answer(const Convert& convert) const {
    if constexpr (sizeof(Stored) <= 2) {
      if (view.numel() >= counted_from)
        return run(view, progress, std::make_unique<ByValue<Stored, T, Convert>>(convert));
    }
    return run(view, progress, std::make_unique<ByBlock<Stored, T, Convert>>(convert));
  }

  // Of integers, T is the one of at least 32 bits that the stored ones are turned into.
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

// A tensor without the dimensions of stride 0, along which each element is repeated.
class Distinct {
 public:
  // Borrows what `view` does.
  explicit Distinct(const TensorView& view) {
    std::vector<std::int64_t> strides;
    for (std::size_t dim = 0; dim < view.rank(); ++dim) {
      const std::int64_t size = view.shape()[dim];
      if (view.strides()[dim] == 0 && size > 0) {
        repeats_ *= static_cast<std::uint64_t>(size);  // fits, as view.numel() does
        continue;
      }
      dims_.push_back(size);
      strides.push_back(view.strides()[dim]);
    }
    dims_.insert(dims_.end(), strides.begin(), strides.end());
    const std::span<const std::byte> bytes = view.stored_bytes();
    view_ = {view.dtype(), strides.size(), dims_.data(), bytes.data(), bytes.size(), view.flags()};
  }
  Distinct(const Distinct&) = delete;
  Distinct& operator=(const Distinct&) = delete;

  const TensorView& view() const noexcept { return view_; }
  // How often each of its elements is one of the tensor.
  std::uint64_t repeats() const noexcept { return repeats_; }

 private:
  std::vector<std::int64_t> dims_;
  TensorView view_;
  std::uint64_t repeats_ = 1;
};

}  // namespace

Result<TensorStatistics> statistics(const TensorView& view, const Progress& progress,
                                    std::uint64_t counted_from) {
  const Distinct distinct(view);
  TRY_ASSIGN(TensorStatistics found, ask({distinct.view(), progress, counted_from}));
  for (std::uint64_t* count : {&found.count, &found.nan, &found.infinite, &found.zeros})
    *count *= distinct.repeats();
  return found;
}

}  // namespace inspect

Result<TensorStatistics> statistics(const TensorView& view, const Progress& progress) {
  // Fewer are done before tables of 65536 counts are gone through.
  constexpr std::uint64_t counted_from = 1 << 16;
  return inspect::statistics(view, progress, counted_from);
}

}  // namespace weightmap
