// A borrowed, read-only window onto one tensor inside a mapped checkpoint.
//
// It is trivially copyable, has 40 bytes, and owns nothing. It is valid until its Checkpoint is
// destroyed (moving the Checkpoint is fine). All members are const and may be called from any
// thread. Reading the bytes may fault pages in from disk; if another process truncates the file,
// that read raises SIGBUS, as with any mapping. SharedTensor (checkpoint.hpp) shares ownership.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "weightmap/dtype.hpp"
#include "weightmap/result.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

// True if the elements of `dtype` may be read as the C++ type T. float16, bfloat16 and float8 read
// as the types of half.hpp, and as types for which element_type_of declares that. In addition,
// unsigned integers may read the raw bits of types that C++20 lacks: std::uint8_t for bool (which
// may hold bytes other than 0 and 1, so never as C++ bool), float8 and packed types; std::uint16_t
// for float16 and bfloat16; std::uint32_t for complex32.
template <class T>
constexpr bool reads_as(DType dtype) noexcept;

class TensorSlice;

class WEIGHTMAP_API TensorView {
 public:
  // Slices carry their own shape, so there is a bound on the rank that can be sliced.
  static constexpr std::size_t max_slice_rank = 8;

  // A placeholder: shape [0] and dtype uint8.
  TensorView() noexcept;

  DType dtype() const noexcept { return dtype_; }
  std::size_t rank() const noexcept { return rank_; }

  // Elements along each dimension, outermost first. Empty for a scalar.
  std::span<const std::int64_t> shape() const& noexcept WEIGHTMAP_LIFETIMEBOUND {
    return {dims_, rank_};
  }
  // Distance between neighbours along each dimension, in elements, as stored in the checkpoint.
  std::span<const std::int64_t> strides() const& noexcept WEIGHTMAP_LIFETIMEBOUND {
    return {dims_ + rank_, rank_};
  }
  void shape() const&& = delete;    // would dangle
  void strides() const&& = delete;  // would dangle

  // Product of the shape; 1 for a scalar, 0 if any dimension is empty.
  std::uint64_t numel() const noexcept;
  // numel() elements in bytes, the size for gather(). An expanded tensor (stride 0) reports more
  // bytes here than it occupies in the file.
  std::uint64_t nbytes() const noexcept { return bytes_of(dtype_, numel()); }

  // The first element, or nullptr if the tensor is empty or is_foreign_byte_order().
  const std::byte* data() const noexcept { return data_; }
  // The bytes from the first to the last element that the strides reach, including the gaps of a
  // tensor that is not contiguous. Empty where data() is nullptr.
  std::span<const std::byte> bytes() const noexcept { return {data_, data_ ? extent_ : 0}; }

  // Why the tensor has no bytes: of torch.distributed.checkpoint each is proven when it is first
  // looked up, and this one is damaged. Then data() is nullptr, bytes() are empty, the strides are
  // row-major, and whatever returns a Result fails with this. nullptr for any other tensor. Lives
  // as long as the Checkpoint.
  const Error* fault() const noexcept { return has_fault_ ? fault_ : nullptr; }
  // Fails with fault().
  Result<void> check_no_fault() const;

  // Row-major without gaps; dimensions of size 1 are ignored.
  bool is_contiguous() const noexcept;
  // True if the file's byte order is not this machine's. Then data() is nullptr and only gather(),
  // which swaps, returns elements.
  bool is_foreign_byte_order() const noexcept { return (flags_ & foreign_order) != 0; }
  // torch's lazy conjugate and negative bits: the stored values are the conjugate (the negative) of
  // the tensor's. as() and gather() return stored values, so they fail if one of these is set.
  bool is_conjugate() const noexcept { return (flags_ & conjugate) != 0; }
  bool is_negative() const noexcept { return (flags_ & negative) != 0; }

  // Returns the elements as a span of numel() T. Fails with invalid_argument if the dtype does not
  // read as T, if the tensor is not contiguous, if the address is not aligned for T, or with
  // unsupported if the byte order is foreign or a lazy bit is set.
  template <class T>
  Result<std::span<const T>> as() const;

  // Returns the blocks of a blocked dtype, such as ggml's structs, row by row. Fails with
  // invalid_argument if the dtype is not blocked or B has another size, if the tensor is not
  // contiguous, if the address is not aligned for B, or with unsupported if the byte order is
  // foreign.
  template <class B>
  Result<std::span<const B>> blocks() const;

  // Returns `length` elements along `dim`: start, start + step, start + 2 * step ... Shares the
  // bytes. Fails with invalid_argument if one of them is out of range, if step < 1, if rank() >
  // max_slice_rank, or if it would divide blocks: along the last dimension of a blocked dtype, only
  // whole blocks and steps of 1 are possible.
  Result<TensorSlice> narrow(std::size_t dim, std::int64_t start, std::int64_t length,
                             std::int64_t step = 1) const;
  // Returns element `index` along `dim`, which disappears from the shape. Shares the bytes. Fails
  // with invalid_argument along the last dimension of a blocked dtype.
  Result<TensorSlice> select(std::size_t dim, std::int64_t index) const;

  // Returns the same elements as unsigned integers of their size: the stored bits of any dtype. A
  // blocked dtype becomes the bytes of its blocks, as uint8: the last dimension is then a row's
  // bytes, so [4096, 256] of q4_K is [4096, 144]. Shares the bytes. Fails with invalid_argument for
  // complex128, since no integer has 16 bytes, if rank() > max_slice_rank, and for an empty tensor
  // whose rows would exceed 63 bits of bytes.
  Result<TensorSlice> bits() const;

  // Writes all elements row-major, without gaps and in this machine's byte order to `out`, which
  // must be exactly nbytes() long. Only this reads a file of foreign byte order. Fails with
  // invalid_argument for another length, with unsupported if a lazy bit is set, and for blocks of
  // foreign byte order, which have fields of several sizes. Reads the mapping; Checkpoint::gather()
  // does the same and raises no signal.
  Result<void> gather(std::span<std::byte> out) const;

  // For code that builds views: the catalog and tests. `shape_and_strides` points to 2 * rank
  // values that outlive the view; `extent` is in bytes. `first` is the first element even when the
  // byte order is foreign. `any_repeats` is set if the checkpoint was opened with
  // OpenOptions::repeats any.
  enum Flags : std::uint8_t { foreign_order = 1, conjugate = 2, negative = 4, any_repeats = 8 };
  TensorView(DType dtype, std::size_t rank, const std::int64_t* shape_and_strides,
             const std::byte* first, std::uint64_t extent, unsigned flags) noexcept;
  static TensorView without_bytes(DType dtype, std::size_t rank,
                                  const std::int64_t* shape_and_strides,
                                  const Error& fault) noexcept;
  unsigned flags() const noexcept { return flags_; }
  // bytes(), even if the byte order is foreign; and the reasons why gather() would refuse.
  std::span<const std::byte> stored_bytes() const noexcept {
    return {first_, first_ ? extent_ : 0};
  }
  Result<void> check_gather(std::size_t out_bytes) const;
  // A view would outlive the shape of a temporary slice: give the slice a name.
  TensorView(const TensorSlice&&) = delete;
  TensorView& operator=(const TensorSlice&&) = delete;

 private:
  friend class TensorSlice;
  Result<void> check_readable(std::size_t alignment) const;
  Result<void> check_not_lazy() const;
  tl::unexpected<Error> not_readable_as(const std::string& type) const;
  tl::unexpected<Error> not_in_blocks_of(std::size_t bytes) const;
  Result<TensorSlice> sliceable(std::size_t dim) const;
  bool divides_blocks(std::size_t dim) const noexcept {
    return is_blocked(dtype_) && dim + 1 == rank_;
  }

  const std::byte* data_;   // nullptr if empty or foreign
  const std::byte* first_;  // first element whatever the byte order; nullptr if empty
  union {
    std::uint64_t extent_;  // bytes reached by the strides
    const Error* fault_;    // if has_fault_
  };
  const std::int64_t* dims_;  // shape then strides: in the catalog, or in a TensorSlice
  DType dtype_;
  std::uint8_t rank_;
  std::uint8_t flags_;
  bool has_fault_ = false;
};
static_assert(std::is_trivially_copyable_v<TensorView>);
static_assert(sizeof(TensorView) <= 48);

// A part of a tensor, with a shape and strides of its own. Copy it freely; the bytes are borrowed
// as a view's are. It can be passed as a TensorView, but a TensorView copied from it borrows its
// shape and must not outlive it.
class WEIGHTMAP_API TensorSlice : public TensorView {
 public:
  // Returns all of `view`. Fails with invalid_argument if its rank is above max_slice_rank.
  static Result<TensorSlice> of(const TensorView& view);

  TensorSlice(const TensorSlice& other) noexcept : TensorSlice(Whole{}, other) {}
  TensorSlice& operator=(const TensorSlice& other) noexcept;

 private:
  friend class TensorView;
  struct Whole {};
  // Precondition: the rank can be sliced.
  TensorSlice(Whole, const TensorView& view) noexcept;
  // Moves `elements` beyond the first element and keeps shape and strides.
  void advance(std::int64_t elements) noexcept;
  void become_empty() noexcept;
  bool become_bytes_of_blocks() noexcept;

  std::int64_t own_dims_[2 * max_slice_rank] = {};  // shape then strides
};
template <>
inline constexpr bool lends_from_itself<TensorSlice> = true;

template <class T>
constexpr bool reads_as(DType dtype) noexcept {
  using enum DType;
  if constexpr (std::is_same_v<T, float>)
    return dtype == float32;
  else if constexpr (std::is_same_v<T, double>)
    return dtype == float64;
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return dtype == complex64;
  else if constexpr (std::is_same_v<T, std::complex<double>>)
    return dtype == complex128;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return dtype == int64;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return dtype == int32 || dtype == qint32;
  else if constexpr (std::is_same_v<T, std::int16_t>)
    return dtype == int16;
  else if constexpr (std::is_same_v<T, std::int8_t>)
    return dtype == int8 || dtype == qint8;
  else if constexpr (std::is_same_v<T, std::uint64_t>)
    return dtype == uint64;
  else if constexpr (std::is_same_v<T, std::uint32_t>)
    return dtype == uint32 || dtype == complex32;
  else if constexpr (std::is_same_v<T, std::uint16_t>)
    return dtype == uint16 || dtype == float16 || dtype == bfloat16 || dtype == bits16 ||
           dtype == opaque16;
  else if constexpr (std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::byte>)
    return !is_blocked(dtype) && element_size(dtype) == 1 && dtype != int8 && dtype != qint8;
  else if constexpr (element_type_of<T>.has_value()) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) == element_size(*element_type_of<T>),
                  "a type of elements is trivially copyable, and as large as the element");
    return dtype == *element_type_of<T>;
  } else
    static_assert(!sizeof(T),
                  "no checkpoint dtype reads as this C++ type; element_type_of<T> may name one");
}

// Returns the name of T in errors: "float", "std::int32_t", "a type for float16".
template <class T>
std::string element_type_name() {
  if constexpr (std::is_same_v<T, float>)
    return "float";
  else if constexpr (std::is_same_v<T, double>)
    return "double";
  else if constexpr (std::is_same_v<T, std::byte>)
    return "std::byte";
  else if constexpr (std::is_integral_v<T>)
    return (std::is_signed_v<T> ? "std::int" : "std::uint") + std::to_string(8 * sizeof(T)) + "_t";
  else if constexpr (element_type_of<T>.has_value())
    return "a type for " + std::string(to_string(*element_type_of<T>));
  else
    return sizeof(T) == 8 ? "std::complex<float>" : "std::complex<double>";
}

template <class B>
Result<std::span<const B>> TensorView::blocks() const {
  static_assert(std::is_trivially_copyable_v<B>, "a type of blocks is trivially copyable");
  if (!is_blocked(dtype_) || block_of(dtype_).bytes != sizeof(B))
    return not_in_blocks_of(sizeof(B));
  if (Result<void> ok = check_readable(alignof(B)); !ok) return tl::unexpected<Error>(ok.error());
  return std::span<const B>(reinterpret_cast<const B*>(data_), nbytes() / sizeof(B));
}

template <class T>
Result<std::span<const T>> TensorView::as() const {
  if (!reads_as<T>(dtype_)) return not_readable_as(element_type_name<T>());
  if (Result<void> ok = check_readable(alignof(T)); !ok) return tl::unexpected<Error>(ok.error());
  return std::span<const T>(reinterpret_cast<const T*>(data_), numel());
}

// Receives consecutive bytes, which it must not keep; returns false to stop early.
using PieceSink = std::function<bool(std::span<const std::byte>)>;

// Reads a tensor's elements in pieces, so that memory stays bounded whatever its size: passes all
// of them to `sink`, row-major and in this machine's byte order: directly from the
// mapping, in one piece, if they have that form there; otherwise in copies of at most
// `copied_bytes`. Fails with unsupported for lazy conjugates and negatives, whose stored values are
// not their values; with limit_exceeded if strides repeat stored elements more often than
// OpenOptions::repeats allows. May be called from any thread, which also calls `sink`. Reads the
// mapping, which raises SIGBUS if the file was truncated.
WEIGHTMAP_API Result<void> for_each_piece(const TensorView& view, const PieceSink& sink,
                                          std::uint64_t copied_bytes = std::uint64_t{16} << 20);

// Returns the T at `at`, which need not be aligned.
template <class T>
T load_element(const std::byte* at) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace weightmap
