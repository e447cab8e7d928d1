// A tensor's elements without those that only its strides repeat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weightmap/tensor_view.hpp"

namespace weightmap::inspect {

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
