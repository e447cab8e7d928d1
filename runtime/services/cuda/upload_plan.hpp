// Divides tensors into pieces for the upload, by pure arithmetic.
//
// Each piece fits a slot and is contiguous on the device; small tensors share a slot. All ways use
// the same pieces, so a refused registration changes only the source of a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::cuda {

// A tensor of the upload.
struct PlannedTensor {
  DType dtype = DType::uint8;
  std::vector<std::int64_t> dims;  // shape then row-major strides
  std::uint64_t nbytes = 0;
  const std::byte* first = nullptr;  // its first byte in the mapping, for errors
  std::size_t end_batch = 0;         // end of the fills that have pieces of it
};

struct Transfer {
  TensorSlice view;  // the part of the mapping
  // True if the device gets the bytes of the view unchanged.
  bool is_as_stored;
  std::size_t tensor;
  std::uint64_t device_offset;  // from the beginning of the tensor
  std::uint64_t slot_offset;
  std::size_t range = 0;  // index into UploadPlan::ranges, if is_as_stored
};

// The pieces that share a slot.
struct Batch {
  std::size_t first_transfer = 0;
  std::size_t transfer_count = 0;
  bool needs_memory = false;  // even with the ways that use the mapping
};

// Whole pages of the mapping that are registered together.
struct MappedRange {
  ByteRange bytes;  // offsets in the mapping
  std::size_t transfers = 0;
};

struct PlanOptions {
  std::uint64_t slot_bytes = 0;      // a multiple of the page
  std::uint64_t register_bytes = 0;  // a multiple of the page
  std::uint64_t page_bytes = 0;
  // Gathers everything, since writes to private memory are in no file.
  bool gather_all = false;
};

struct UploadPlan {
  std::vector<PlannedTensor> tensors;
  std::vector<Transfer> transfers;  // in the order of the tensors
  std::vector<Batch> batches;       // in the order of the transfers
  std::vector<MappedRange> ranges;

  std::span<const Transfer> transfers_of(const Batch& batch) const noexcept {
    return std::span(transfers).subspan(batch.first_transfer, batch.transfer_count);
  }
};

// Returns the shape and its row-major strides. Precondition: the elements of a tensor of this shape
// fit 63 bits, or it is empty.
std::vector<std::int64_t> row_major_dims(std::span<const std::int64_t> shape);

// Preconditions: views that are not empty lie in `mapping`, and gather() accepts them. Fails with
// invalid_argument for a view that must be cut and has too many dimensions.
Result<UploadPlan> plan_upload(std::span<const TensorView> views,
                               std::span<const std::byte> mapping, const PlanOptions& options);

}  // namespace weightmap::cuda
