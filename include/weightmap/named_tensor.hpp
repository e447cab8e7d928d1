// The facts about tensors and storages, in addition to their bytes; tensors that consist of others.
//
// All types borrow from the Checkpoint that they came from; copy them freely until it is destroyed.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightmap/dtype.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

class Checkpoint;

struct NamedTensor {
  std::string_view name;  // the path joined by dots
  TensorView view;
  std::string_view storage;         // key of the storage: "0" for data/0
  std::int64_t storage_offset = 0;  // of the first element in the storage, in elements
  std::uint64_t file_offset = 0;    // of the first element in its file, in bytes
  std::string_view location;        // the device when it was saved: "cpu", "cuda:0"
  bool requires_grad = false;
  bool is_parameter = false;      // torch.nn.Parameter, also by a TorchScript class
  bool is_buffer = false;         // by a TorchScript class, or in a pickled module
  std::size_t index = 0;          // position in Checkpoint::tensors()
  std::size_t storage_index = 0;  // position among Backing::storage()
  std::size_t source = 0;         // the file it lies in: position among Checkpoint::source()
  std::string_view file;          // that file's name in errors
  bool is_copied = false;         // compressed or as text in the file; `source` is memory

  // True if the view shows the bytes of the file in this machine's byte order.
  bool is_zero_copy() const noexcept { return !is_copied && !view.is_foreign_byte_order(); }
  // Returns view.as<T>(), with errors that name the tensor and the file.
  template <class T>
  Result<std::span<const T>> as() const {
    Result<std::span<const T>> elements = view.as<T>();
    if (!elements) return tl::unexpected<Error>(about(std::move(elements.error())));
    return elements;
  }
  // Adds the tensor and the file to `error`.
  WEIGHTMAP_API Error about(Error error) const;
};

struct NamedStorage {
  std::string_view key;
  // Returns the name of its record in a torch archive, without the top folder.
  WEIGHTMAP_API std::string record() const;
  std::uint64_t payload_offset = 0;  // in its file, in bytes
  std::uint64_t nbytes = 0;          // of the record
  std::uint32_t crc32 = 0;           // 0 with nbytes > 0: the writer did not compute it
  std::size_t source = 0;            // the file it lies in
  // As TensorView::fault(): then it has no bytes.
  const Error* fault = nullptr;
};

// All tensors of a checkpoint in file order; each NamedTensor is computed on access. Stays valid
// when the Checkpoint is moved.
class TensorRange {
 public:
  class Iterator;

  TensorRange() noexcept = default;
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  // Precondition: index < size().
  NamedTensor operator[](std::size_t index) const noexcept { return at_(owner_, index); }
  Iterator begin() const noexcept;
  Iterator end() const noexcept;

 private:
  friend class Checkpoint;
  using At = NamedTensor (*)(const void* owner, std::size_t index) noexcept;
  TensorRange(const void* owner, At at, std::size_t size) noexcept
      : owner_(owner), at_(at), size_(size) {}

  const void* owner_ = nullptr;
  At at_ = nullptr;
  std::size_t size_ = 0;
};

class TensorRange::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;  // returns values, not references
  using iterator_concept = std::random_access_iterator_tag;
  using value_type = NamedTensor;
  using difference_type = std::ptrdiff_t;

  Iterator() noexcept = default;
  NamedTensor operator*() const noexcept { return range_[index_]; }
  NamedTensor operator[](difference_type n) const noexcept { return *(*this + n); }
  Iterator& operator+=(difference_type n) noexcept {
    index_ += static_cast<std::size_t>(n);
    return *this;
  }
  Iterator& operator-=(difference_type n) noexcept { return *this += -n; }
  Iterator& operator++() noexcept { return *this += 1; }
  Iterator& operator--() noexcept { return *this -= 1; }
  Iterator operator++(int) noexcept { return (*this += 1) - 1; }
  Iterator operator--(int) noexcept { return (*this -= 1) + 1; }
  friend Iterator operator+(Iterator at, difference_type n) noexcept { return at += n; }
  friend Iterator operator+(difference_type n, Iterator at) noexcept { return at += n; }
  friend Iterator operator-(Iterator at, difference_type n) noexcept { return at -= n; }
  friend difference_type operator-(const Iterator& a, const Iterator& b) noexcept {
    return static_cast<difference_type>(a.index_) - static_cast<difference_type>(b.index_);
  }
  friend bool operator==(const Iterator& a, const Iterator& b) noexcept {
    return a.index_ == b.index_;
  }
  friend std::strong_ordering operator<=>(const Iterator& a, const Iterator& b) noexcept {
    return a.index_ <=> b.index_;
  }

 private:
  friend class TensorRange;
  Iterator(const TensorRange& range, std::size_t index) noexcept : range_(range), index_(index) {}
  TensorRange range_;
  std::size_t index_ = 0;
};

inline TensorRange::Iterator TensorRange::begin() const noexcept { return {*this, 0}; }
inline TensorRange::Iterator TensorRange::end() const noexcept { return {*this, size_}; }

// A tensor that consists of other tensors, or of more than elements: a quantized, sparse, nested,
// meta or chunked one, or a subclass.
//
// Its parts are ordinary tensors of the checkpoint, which Checkpoint::tensors() lists under names
// that begin with that of the whole; a quantized tensor of integers is a part of itself. Nothing is
// computed or validated: sparse indices, for example, may lie outside the shape.
struct ComposedTensor {
  enum class Form : std::uint8_t {
    quantized,    // integers; value = scale x (integer - zero_point)
    per_channel,  // quantized, with tensors of scales and zero points along `axis`
    sparse_coo,   // parts: indices, values
    sparse_csr,   // parts: compressed indices, plain indices, values; so the next three
    sparse_csc,
    sparse_bsr,
    sparse_bsc,
    nested,      // parts: buffer, sizes, strides, storage offsets; jagged: values, offsets ...
    meta,        // no bytes at all
    subclass,    // of a class that wraps other tensors; parts: the tensors of its state
    from_array,  // made from a numpy array, for a device of its own
    chunked,     // lies in boxes, which are the parts (chunks.hpp)
  };

  std::string name;  // as NamedTensor::name
  Form form = Form::meta;
  std::optional<DType> dtype;         // if the file states it; otherwise that of the parts
  std::vector<std::int64_t> sizes;    // elements; empty where only running code could tell
  std::vector<std::int64_t> strides;  // elements; of quantized, meta and subclass
  bool requires_grad = false;
  bool is_parameter = false;
  bool is_buffer = false;            // as NamedTensor::is_buffer
  std::string type;                  // of subclass: "module.Class"
  std::string device;                // of subclass and from_array, from the file: "cpu"
  double scale = 0;                  // of quantized
  std::int64_t zero_point = 0;       // of quantized
  std::int64_t axis = 0;             // of per_channel
  std::optional<bool> is_coalesced;  // of sparse_coo, if the file states it
  // For chunked: the beginning of each part in the whole, in elements along each dimension; each
  // part has as many numbers as there are sizes. Parts are in row-major order of these.
  std::vector<std::int64_t> offsets;
  // Positions in Checkpoint::tensors() of its parts, which are consecutive.
  std::size_t first_part = 0;
  std::size_t part_count = 0;
};

// Returns "sparse_coo", ...
WEIGHTMAP_API std::string_view to_string(ComposedTensor::Form form) noexcept;

// Returns them in file order; valid as long as the checkpoint. May be called from any thread.
WEIGHTMAP_API std::span<const ComposedTensor> composed_tensors(
    const Checkpoint& checkpoint) noexcept;

// Returns tensors()[index].name without looking the tensor up; see TensorView::fault(). May be
// called from any thread. Precondition: index < tensors().size().
WEIGHTMAP_API std::string_view tensor_name(const Checkpoint& checkpoint,
                                           std::size_t index) noexcept;

// Returns the positions in Checkpoint::tensors() of all tensors whose names match a shell pattern,
// in file order: as `weightmap ls FILE PATTERN` does, and the lines of an order file (warmer.hpp).
// The whole name must match, and a dot is an ordinary byte. A literal name matches, too, even with
// wildcard characters. May be called from any thread.
//
// Every text is a pattern. "*" matches any number of bytes, including none, and "?" one byte.
// "[abc]" matches one of these bytes, "[a-z]" one of a range, "[!abc]" or "[^abc]" one that is not
// listed; a
// "]" that comes first is listed, and a "[" that no "]" follows stands for itself. "\xHH" matches
// the byte of this hexadecimal number of two digits, "\c" any other character c: "\*" is an
// asterisk. A backslash at the very end is ignored.
WEIGHTMAP_API std::vector<std::size_t> match_tensors(const Checkpoint& checkpoint,
                                                     std::string_view pattern);

}  // namespace weightmap

template <>
inline constexpr bool std::ranges::enable_view<weightmap::TensorRange> = true;
template <>
inline constexpr bool std::ranges::enable_borrowed_range<weightmap::TensorRange> = true;
