// In which parts tensors go to the device: pure arithmetic.
//
// A tensor goes in transfers that fit a slot, each of which lies together on the device; small
// tensors share a slot. All ways go through the same transfers, so that a refused registration
// changes nothing but where a transfer is copied from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/bytes/byte_range.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::cuda {

// What of a checkpoint is uploaded.
struct PlannedTensor {
  DType dtype = DType::uint8;
  std::vector<std::int64_t> dims;  // shape then row-major strides
  std::uint64_t nbytes = 0;
  const std::byte* first = nullptr;  // its first byte in the mapping, for errors
  std::size_t end_batch = 0;         // behind the last batch that has a transfer of it
};

struct Transfer {
  TensorSlice view;  // what of the mapping
  // The bytes of the view are what the device gets.
  bool is_as_stored;
  std::size_t tensor;
  std::uint64_t device_offset;  // from where the tensor begins
  std::uint64_t slot_offset;
  std::size_t range = 0;  // of UploadPlan::ranges, if it is as stored
};

// What shares a slot.
struct Batch {
  std::size_t first_transfer = 0;
  std::size_t transfer_count = 0;
  bool needs_memory = false;  // by any way
};

// Whole pages of the mapping that are registered as one.
struct MappedRange {
  ByteRange bytes;  // from the beginning of the mapping
  std::size_t transfers = 0;
};

struct PlanOptions {
  std::uint64_t slot_bytes = 0;      // a multiple of the page
  std::uint64_t register_bytes = 0;  // a multiple of the page
  std::uint64_t page_bytes = 0;
  // Nothing of the mapping is taken as it is: what was written to private memory is in no file.
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

// Row-major strides behind the shape. Precondition: the elements of a tensor of this shape, or the
// tensor is empty, fit 63 bits.
std::vector<std::int64_t> row_major_dims(std::span<const std::int64_t> shape);

// Views that are not empty lie in `mapping`, and gather() would take them. Fails with
// invalid_argument for one that would have to be cut and has too many dimensions.
Result<UploadPlan> plan_upload(std::span<const TensorView> views,
                               std::span<const std::byte> mapping, const PlanOptions& options);

}  // namespace weightmap::cuda
