// Iterates over the elements of a tensor with any strides, row-major, in portions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weightmap/tensor_view.hpp"

namespace weightmap {

// It keeps its position along each dimension, so that neither memory nor call depth depends on the
// rank or the number of elements.
class ElementWalk {
 public:
  // Borrows what `view` borrows. Precondition: it has elements and is not blocked.
  explicit ElementWalk(const TensorView& view);
  // Fills `out` with the next elements in this machine's byte order. Precondition: enough are left.
  void copy(std::span<std::byte> out);

 private:
  struct Dim {
    std::int64_t size;
    std::int64_t stride;  // elements
    std::int64_t at = 0;
  };
  void copy_along_last(std::int64_t count, std::byte* out) const;
  void advance(std::int64_t count);

  const std::byte* first_;
  std::size_t element_;     // bytes
  std::size_t swapped_;     // bytes that are swapped together; 1: none
  std::vector<Dim> dims_;   // at least one
  std::int64_t start_ = 0;  // offset from first_ in elements, without the last dimension
};

// Returns the number of elements in the storage from the view's first to its last.
std::uint64_t stored_elements(const TensorView& view) noexcept;

// Fails with limit_exceeded if strides repeat stored elements so often that a walk over all
// elements would be unbounded. Views of a checkpoint with `repeats` any have no limit.
Result<void> check_repeats(const TensorView& view);

}  // namespace weightmap
