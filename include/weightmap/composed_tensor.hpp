// Tensors that consist of other tensors, or of more than elements: quantized, sparse, nested, meta
// and chunked tensors and subclasses.
//
// Their parts are ordinary tensors of the checkpoint, which Checkpoint::tensors() lists under names
// that begin with that of the whole; a quantized tensor of integers is a part of itself. Nothing is
// computed or validated: sparse indices, for example, may lie outside the shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/dtype.hpp"
#include "weightmap/export.hpp"

namespace weightmap {

class Checkpoint;

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

}  // namespace weightmap
