#include "weightmap/tensor_view.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "runtime/base/element_walk.hpp"
#include "runtime/base/try.hpp"

namespace weightmap {
namespace {

std::string number(std::uint64_t value) { return std::to_string(value); }

// Lists the C++ types that as() accepts for this dtype.
std::string types_that_read(DType dtype) {
  using enum DType;
  if (is_blocked(dtype)) return "blocks of " + number(block_of(dtype).bytes) + " bytes";
  const std::string own = "weightmap::" + std::string(to_string(dtype)) + " (half.hpp)";
  switch (dtype) {
    case float64:
      return "double";
    case float32:
      return "float";
    case float16:
    case bfloat16:
      return own + " or std::uint16_t";
    case float8_e5m2:
    case float8_e4m3fn:
    case float8_e5m2fnuz:
    case float8_e4m3fnuz:
    case float8_e8m0fnu:
      return own + ", std::uint8_t or std::byte";
    case complex128:
      return "std::complex<double>";
    case complex64:
      return "std::complex<float>";
    case complex32:
      return "std::uint32_t";
    case int64:
    case int32:
    case int16:
    case int8:
    case uint64:
    case uint32:
    case uint16:
      return "std::" + std::string(to_string(dtype)) + "_t";
    case qint32:
      return "std::int32_t";
    case qint8:
      return "std::int8_t";
    case bits16:
    case opaque16:
      return "std::uint16_t";
    default:
      return "std::uint8_t or std::byte";
  }
}

constexpr std::int64_t no_elements[] = {0, 1};

constexpr const char* foreign_blocks =
    "the tensor has blocks in the other byte order, whose fields are not converted; bits() gives "
    "their bytes";

}  // namespace

TensorView::TensorView() noexcept : TensorView(DType::uint8, 1, no_elements, nullptr, 0, 0) {}

TensorView::TensorView(DType dtype, std::size_t rank, const std::int64_t* shape_and_strides,
                       const std::byte* first, std::uint64_t extent, unsigned flags) noexcept
    : data_((flags & foreign_order) != 0 ? nullptr : first),
      first_(first),
      extent_(extent),
      dims_(shape_and_strides),
      dtype_(dtype),
      rank_(static_cast<std::uint8_t>(rank)),
      flags_(static_cast<std::uint8_t>(flags)) {}

TensorView TensorView::without_bytes(DType dtype, std::size_t rank,
                                     const std::int64_t* shape_and_strides,
                                     const Error& fault) noexcept {
  TensorView view(dtype, rank, shape_and_strides, nullptr, 0, 0);
  view.fault_ = &fault;
  view.has_fault_ = true;
  return view;
}

Result<void> TensorView::check_no_fault() const {
  if (!has_fault_) return {};
  return tl::unexpected<Error>(*fault_);
}

std::uint64_t TensorView::numel() const noexcept {
  std::uint64_t product = 1;
  for (std::int64_t size : shape()) product *= static_cast<std::uint64_t>(size);
  return product;
}

bool TensorView::is_contiguous() const noexcept {
  const auto sizes = shape();
  const auto steps = strides();
  if (numel() == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t dim = rank_; dim-- > 0;) {
    if (sizes[dim] == 1) continue;
    if (steps[dim] != expected) return false;
    expected *= sizes[dim];
  }
  return true;
}

tl::unexpected<Error> TensorView::not_readable_as(const std::string& type) const {
  return failure(ErrorCode::invalid_argument, std::string(to_string(dtype_)) + " reads as " +
                                                  types_that_read(dtype_) + ", not as " + type);
}

tl::unexpected<Error> TensorView::not_in_blocks_of(std::size_t bytes) const {
  const std::string type(to_string(dtype_));
  return failure(ErrorCode::invalid_argument,
                 (is_blocked(dtype_) ? type + " reads as " + types_that_read(dtype_)
                                     : type + " has no blocks, so it does not read as some") +
                     ", not of " + number(bytes));
}

Result<void> TensorView::check_readable(std::size_t alignment) const {
  TRY(check_no_fault());
  if (is_foreign_byte_order())
    return failure(ErrorCode::unsupported,
                   is_blocked(dtype_)
                       ? foreign_blocks
                       : "the tensor is in the other byte order; gather() converts it");
  TRY(check_not_lazy());
  if (!is_contiguous())
    return failure(
        ErrorCode::invalid_argument,
        "the tensor is not contiguous; gather() copies its elements in order, and data() "
        "with strides() reaches them where they are");
  if (reinterpret_cast<std::uintptr_t>(data_) % alignment != 0)
    return failure(ErrorCode::invalid_argument, "the address of the tensor is not a multiple of " +
                                                    number(alignment) + "; gather() copies it");
  return {};
}

Result<void> TensorView::check_not_lazy() const {
  if (!is_conjugate() && !is_negative()) return {};
  return failure(ErrorCode::unsupported,
                 "the tensor is a lazy conjugate or negative view; its stored values are not its "
                 "values");
}

TensorSlice::TensorSlice(Whole, const TensorView& view) noexcept : TensorView(view) {
  std::copy_n(view.dims_, 2 * rank_, own_dims_);
  dims_ = own_dims_;
}

TensorSlice& TensorSlice::operator=(const TensorSlice& other) noexcept {
  if (this == &other) return *this;
  TensorView::operator=(other);
  std::copy_n(other.own_dims_, 2 * rank_, own_dims_);
  dims_ = own_dims_;
  return *this;
}

Result<TensorSlice> TensorSlice::of(const TensorView& view) {
  TRY(view.check_no_fault());
  if (view.rank() > max_slice_rank)
    return failure(ErrorCode::invalid_argument, "a tensor of rank " + number(view.rank()) +
                                                    " cannot be sliced; the highest rank is " +
                                                    number(max_slice_rank));
  return TensorSlice(Whole{}, view);
}

Result<TensorSlice> TensorView::sliceable(std::size_t dim) const {
  if (dim < rank_) return TensorSlice::of(*this);
  return failure(
      ErrorCode::invalid_argument,
      "dimension " + number(dim) + " does not exist in a tensor of rank " + number(rank_));
}

void TensorSlice::become_empty() noexcept {
  extent_ = 0;
  data_ = first_ = nullptr;
}

// Strides are not negative and (size - 1) * stride summed fits the storage, which the catalog has
// proven for the whole tensor; a part of it has a smaller extent, so plain arithmetic suffices.
void TensorSlice::advance(std::int64_t elements) noexcept {
  std::int64_t last = 0;
  for (std::size_t dim = 0; dim < rank_; ++dim) last += (shape()[dim] - 1) * strides()[dim];
  extent_ = bytes_of(dtype_, static_cast<std::uint64_t>(last + 1));
  first_ += bytes_of(dtype_, static_cast<std::uint64_t>(elements));
  data_ = is_foreign_byte_order() ? nullptr : first_;
}

Result<TensorSlice> TensorView::narrow(std::size_t dim, std::int64_t start, std::int64_t length,
                                       std::int64_t step) const {
  Result<TensorSlice> part = sliceable(dim);
  if (!part) return part;
  const std::int64_t size = shape()[dim];
  if (step < 1)
    return failure(ErrorCode::invalid_argument,
                   "a slice goes forward, by a step of at least 1, not " + std::to_string(step));
  const bool fits = start >= 0 && length >= 0 && start <= size &&
                    (length == 0 || (start < size && length - 1 <= (size - 1 - start) / step));
  if (!fits)
    return failure(ErrorCode::invalid_argument,
                   std::to_string(length) + (length == 1 ? " element" : " elements") + " from " +
                       std::to_string(start) + (step == 1 ? "" : " by " + std::to_string(step)) +
                       (length == 1 ? " leaves" : " leave") + " dimension " + number(dim) +
                       " of size " + std::to_string(size));
  if (divides_blocks(dim)) {
    const auto block = static_cast<std::int64_t>(block_of(dtype_).elements);
    if (step != 1 || start % block != 0 || length % block != 0)
      return failure(ErrorCode::invalid_argument, "a row of " + std::string(to_string(dtype_)) +
                                                      " is narrowed to whole blocks of " +
                                                      std::to_string(block) +
                                                      " elements, by a step of 1");
  }
  TensorSlice& slice = *part;
  slice.own_dims_[dim] = length;
  // The strides of an empty tensor are unbounded, so nothing is computed with them.
  if (slice.numel() == 0) {
    slice.become_empty();
    return part;
  }
  // The stride of a single element is never used, and times the step it could overflow.
  if (length > 1) slice.own_dims_[rank_ + dim] *= step;
  slice.advance(start == 0 ? 0 : start * strides()[dim]);
  return part;
}

Result<TensorSlice> TensorView::select(std::size_t dim, std::int64_t index) const {
  Result<TensorSlice> part = sliceable(dim);
  if (!part) return part;
  const std::int64_t size = shape()[dim];
  if (index < 0 || index >= size)
    return failure(ErrorCode::invalid_argument, "index " + std::to_string(index) +
                                                    " leaves dimension " + number(dim) +
                                                    " of size " + std::to_string(size));
  if (divides_blocks(dim))
    return failure(ErrorCode::invalid_argument, "one element of " + std::string(to_string(dtype_)) +
                                                    " cannot be taken out of its block");
  TensorSlice& slice = *part;
  std::int64_t* end = slice.own_dims_ + 2 * rank_;
  std::copy(slice.own_dims_ + rank_ + dim + 1, end, slice.own_dims_ + rank_ + dim);
  std::copy(slice.own_dims_ + dim + 1, end - 1, slice.own_dims_ + dim);
  --slice.rank_;
  if (slice.numel() == 0)
    slice.become_empty();
  else
    slice.advance(index == 0 ? 0 : index * strides()[dim]);
  return part;
}

bool TensorSlice::become_bytes_of_blocks() noexcept {
  const auto [elements, bytes] = block_of(dtype_);
  const std::int64_t most_blocks = std::numeric_limits<std::int64_t>::max() / bytes;
  if (own_dims_[rank_ - 1] / elements > most_blocks) return false;
  own_dims_[rank_ - 1] = own_dims_[rank_ - 1] / elements * bytes;
  // A stride that does not fit is never used: the tensor is empty, or has one row there.
  for (std::size_t dim = rank_; dim + 1 < std::size_t{2} * rank_; ++dim)
    if (own_dims_[dim] / elements <= most_blocks)
      own_dims_[dim] = own_dims_[dim] / elements * bytes;
  dtype_ = DType::uint8;
  flags_ &= any_repeats;  // bytes have no order
  data_ = first_;
  return true;
}

Result<TensorSlice> TensorView::bits() const {
  Result<TensorSlice> part = TensorSlice::of(*this);
  if (!part) return part;
  TensorSlice& slice = *part;
  if (is_blocked(dtype_)) {
    if (!slice.become_bytes_of_blocks())
      return failure(ErrorCode::invalid_argument,
                     "the rows of the empty tensor have more bytes than 63 bits count");
    return part;
  }
  switch (element_size(dtype_)) {
    case 1:
      slice.dtype_ = DType::uint8;
      break;
    case 2:
      slice.dtype_ = DType::uint16;
      break;
    case 4:
      slice.dtype_ = DType::uint32;
      break;
    case 8:
      slice.dtype_ = DType::uint64;
      break;
    default:
      return failure(ErrorCode::invalid_argument,
                     std::string(to_string(dtype_)) + " is wider than any integer");
  }
  slice.flags_ &= foreign_order | any_repeats;  // a lazy conjugate is not part of the stored bits
  return part;
}

Result<void> TensorView::check_gather(std::size_t out_bytes) const {
  TRY(check_no_fault());
  TRY(check_not_lazy());
  if (is_blocked(dtype_) && is_foreign_byte_order())
    return failure(ErrorCode::unsupported, foreign_blocks);
  if (out_bytes == nbytes()) return {};
  return failure(ErrorCode::invalid_argument, "the buffer has " + number(out_bytes) +
                                                  " bytes, the tensor needs " + number(nbytes()));
}

Result<void> TensorView::gather(std::span<std::byte> out) const {
  TRY(check_gather(out.size()));
  if (out.empty()) return {};
  if (is_contiguous() && !is_foreign_byte_order())
    std::memcpy(out.data(), first_, out.size());
  else if (is_blocked(dtype_))
    return bits().and_then([out](const TensorSlice& bytes) { return bytes.gather(out); });
  else
    ElementWalk(*this).copy(out);
  return {};
}

}  // namespace weightmap
