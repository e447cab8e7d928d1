// The elements of a tensor with any strides, row-major, some at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weightmap/tensor_view.hpp"

namespace weightmap {

// Knows where it is along each dimension, so that neither memory nor the depth of the call stack
// depends on the rank or the number of elements.
class ElementWalk {
 public:
  // Borrows what `view` does. Precondition: it has elements and is not blocked.
  explicit ElementWalk(const TensorView& view);
  // As many elements as `out` holds, in this machine's byte order. Precondition: there are so many.
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
  std::int64_t start_ = 0;  // elements from first_, of all dimensions but the last
};

// How many elements the view reaches in its storage, from the first to the last.
std::uint64_t stored_elements(const TensorView& view) noexcept;

// Fails with limit_exceeded where strides repeat what is stored so often that going through the
// elements one by one would have no bound. Views of a checkpoint that was opened with `repeats` any
// have none.
Result<void> check_repeats(const TensorView& view);

}  // namespace weightmap
