// Slicing without copying.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "python/src/errors.hpp"
#include "python/src/tensor.hpp"
#include "python/src/torch_door.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// Not a tensor or an array of another library that selects elements, though some of these claim to
// be an integer: one of bools, or with dimensions.
bool is_integer(nb::handle part) {
  if (nb::isinstance<nb::bool_>(part) || PyIndex_Check(part.ptr()) == 0) return false;
  if (nb::isinstance<nb::int_>(part)) return true;
  const nb::object dims = nb::getattr(part, "ndim", nb::int_(0));
  const nb::str dtype(nb::getattr(part, "dtype", nb::none()));
  return dims.equal(nb::int_(0)) && !std::string_view(dtype.c_str()).ends_with("bool");
}

// The parts of a key are used up from left to right; `dim` is the dimension that comes next.
class Slicer {
 public:
  explicit Slicer(const Tensor& tensor) : tensor_(tensor) {}

  Tensor apply(nb::handle key) && {
    if (!nb::isinstance<nb::tuple>(key)) {
      apply_part(key, 0);
      return std::move(tensor_);
    }
    const auto parts = nb::borrow<nb::tuple>(key);
    std::size_t ellipses = 0;
    for (nb::handle part : parts) ellipses += part.is(Py_Ellipsis) ? 1 : 0;
    if (ellipses > 1) throw nb::index_error("an index can only have one ellipsis");
    const std::size_t rank = tensor_.view().rank();
    const std::size_t used = parts.size() - ellipses;
    if (used > rank) too_many(used, rank);
    for (nb::handle part : parts) apply_part(part, rank - used);
    return std::move(tensor_);
  }

 private:
  [[noreturn]] static void too_many(std::size_t used, std::size_t rank) {
    throw nb::index_error(("too many indices: the tensor has " + std::to_string(rank) +
                           " dimensions, " + std::to_string(used) + " were indexed")
                              .c_str());
  }

  // `skipped`: how many dimensions an ellipsis stands for.
  void apply_part(nb::handle part, std::size_t skipped) {
    if (part.is(Py_Ellipsis)) {
      dim_ += skipped;
    } else if (nb::isinstance<nb::slice>(part)) {
      slice(nb::borrow<nb::slice>(part));
    } else if (is_integer(part)) {
      select(part);
    } else {
      throw nb::type_error(
          "a tensor is indexed by integers, slices and one ellipsis; masks, lists and arrays of "
          "indices and None go to .numpy()[...] or .torch()[...]");
    }
  }

  std::int64_t size() const {
    if (dim_ >= tensor_.view().rank()) too_many(dim_ + 1, tensor_.view().rank());
    const TensorView& view = tensor_.view();
    return view.shape()[dim_];
  }
  std::int64_t stride() const noexcept {
    const TensorView& view = tensor_.view();
    return view.strides()[dim_];
  }

  void select(nb::handle part) {
    const Py_ssize_t asked = PyNumber_AsSsize_t(part.ptr(), PyExc_IndexError);
    if (asked == -1 && PyErr_Occurred()) throw nb::python_error();
    const std::int64_t length = size();
    const std::int64_t index = asked < 0 ? asked + length : asked;
    if (index < 0 || index >= length)
      throw nb::index_error(("index " + std::to_string(asked) + " is out of bounds for a " +
                             "dimension of size " + std::to_string(length))
                                .c_str());
    const std::int64_t skipped = index * stride();
    replace(tensor_.view().select(dim_, index), skipped);
  }

  void slice(const nb::slice& asked) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(asked.ptr(), &start, &stop, &step) != 0) throw nb::python_error();
    if (step < 0)
      throw nb::value_error(
          "a slice of a tensor goes forward; .numpy()[...] takes a step below 0, too");
    const Py_ssize_t length = PySlice_AdjustIndices(size(), &start, &stop, step);
    const std::int64_t skipped = length == 0 ? 0 : start * stride();
    replace(tensor_.view().narrow(dim_, start, length, step), skipped);
    ++dim_;
  }

  void replace(const Result<TensorSlice>& part, std::int64_t skipped) {
    if (!part) raise(part.error());
    NamedTensor& named = tensor_.named;
    tensor_.part = *part;
    if (part->numel() == 0) return;  // has no place
    named.storage_offset += skipped;
    named.file_offset += bytes_of(part->dtype(), static_cast<std::uint64_t>(skipped));
  }

  Tensor tensor_;
  std::size_t dim_ = 0;
};

// Elements from the first that these reach to the last, both included; 0 if there are none, nullopt
// if the numbers make no sense.
std::optional<std::uint64_t> reach(const std::vector<std::int64_t>& shape,
                                   const std::vector<std::int64_t>& strides) {
  const auto is_negative = [](std::int64_t number) { return number < 0; };
  if (shape.size() != strides.size() || shape.size() > TensorView::max_slice_rank ||
      std::any_of(shape.begin(), shape.end(), is_negative) ||
      std::any_of(strides.begin(), strides.end(), is_negative))
    return std::nullopt;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  const std::uint64_t count = reach_of(shape, strides);
  return count == 0 ? std::nullopt : std::optional(count);
}

// Returns true if there are more elements than `most`.
bool are_more(const std::vector<std::int64_t>& shape, std::uint64_t most) {
  std::uint64_t count = 1;
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count)) return true;
  return count > most;
}

}  // namespace

Tensor part_of(const Tensor& whole, std::uint64_t offset, const std::vector<std::int64_t>& shape,
               const std::vector<std::int64_t>& strides) {
  const TensorView& view = whole.view();
  const Block block = block_of(view.dtype());
  const std::span<const std::byte> bytes = view.stored_bytes();
  const std::optional<std::uint64_t> count = reach(shape, strides);
  const std::uint64_t there = bytes.size() / block.bytes * block.elements;
  const bool fits = count && offset <= there && *count <= there - offset;
  if (!fits || (*count > 0 && are_more(shape, view.numel())))
    raise(ErrorCode::invalid_argument, "has no such part");
  std::array<std::int64_t, 2 * TensorView::max_slice_rank> dims{};
  std::copy(strides.begin(), strides.end(), std::copy(shape.begin(), shape.end(), dims.begin()));
  const std::uint64_t skipped = bytes_of(view.dtype(), offset);
  const std::byte* first = *count == 0 ? nullptr : bytes.data() + skipped;
  Tensor part = whole;
  part.part =
      value_or_raise(TensorSlice::of(TensorView(view.dtype(), shape.size(), dims.data(), first,
                                                bytes_of(view.dtype(), *count), view.flags())));
  part.named.storage_offset += static_cast<std::int64_t>(offset);
  part.named.file_offset += skipped;
  return part;
}

Tensor subscript(const Tensor& tensor, nb::handle key) { return Slicer(tensor).apply(key); }

}  // namespace weightmap::python
