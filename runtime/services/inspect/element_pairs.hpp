// Iterates over two tensors of one shape, in pieces of the same elements, and without those that
// only their strides repeat.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/element_walk.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/inspect/take_in.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::inspect {

// The elements of one tensor, row-major; directly from the mapping if they have that form there.
class ElementSource {
 public:
  explicit ElementSource(const TensorView& view) : element_(element_size(view.dtype())) {
    if (is_mapped(view))
      mapped_ = view.bytes();
    else
      walk_.emplace(view);
  }
  static bool is_mapped(const TensorView& view) noexcept {
    return view.data() != nullptr && view.is_contiguous();
  }
  // Valid until the next call.
  std::span<const std::byte> next(std::uint64_t count) {
    if (walk_) {
      copy_.resize(count * element_);
      walk_->copy(copy_);
      return copy_;
    }
    const std::span<const std::byte> some = mapped_.first(count * element_);
    mapped_ = mapped_.subspan(some.size());
    return some;
  }

 private:
  std::size_t element_;
  std::span<const std::byte> mapped_;
  std::optional<ElementWalk> walk_;
  std::vector<std::byte> copy_;
};

// Calls sink(a, b) with the bytes of consecutive elements, row-major, in this machine's byte order:
// in one piece if both are mapped in that form, otherwise in pieces of at most piece_bytes. The
// sink returns false to stop early. Preconditions: neither is blocked or has a lazy bit.
template <class Sink>
Result<void> for_each_pair(const TensorView& a, const TensorView& b, const Sink& sink) {
  const std::uint64_t all = a.numel();
  if (all == 0) return {};
  // It suffices that one of the two repeats little.
  if (!check_repeats(b)) TRY(check_repeats(a));
  std::uint64_t step = all;
  if (!ElementSource::is_mapped(a) || !ElementSource::is_mapped(b))
    step = piece_bytes / std::max(element_size(a.dtype()), element_size(b.dtype()));
  ElementSource of_a(a);
  ElementSource of_b(b);
  for (std::uint64_t done = 0; done < all; done += std::min(step, all - done)) {
    const std::uint64_t some = std::min(step, all - done);
    if (!sink(of_a.next(some), of_b.next(some))) break;
  }
  return {};
}

// A tensor without dimensions of stride 0, along which each element is repeated.
class Distinct {
 public:
  // Removes the dimensions that have stride 0 in `other`, too, a tensor of the same shape. Borrows
  // what `view` borrows.
  Distinct(const TensorView& view, const TensorView& other) {
    std::vector<std::int64_t> strides;
    for (std::size_t dim = 0; dim < view.rank(); ++dim) {
      const std::int64_t size = view.shape()[dim];
      if (repeats_along(dim, view, other)) {
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

  static bool repeats_along(std::size_t dim, const TensorView& view,
                            const TensorView& other) noexcept {
    return view.strides()[dim] == 0 && other.strides()[dim] == 0 && view.shape()[dim] > 0;
  }

  const TensorView& view() const noexcept { return view_; }
  // The number of repetitions of each element.
  std::uint64_t repeats() const noexcept { return repeats_; }

 private:
  std::vector<std::int64_t> dims_;
  TensorView view_;
  std::uint64_t repeats_ = 1;
};

}  // namespace weightmap::inspect
