#include "runtime/services/cuda/upload_plan.hpp"

#include <algorithm>
#include <functional>

#include "runtime/base/bytes/round_up.hpp"
#include "runtime/base/bytes/row_major.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::cuda {
namespace {

// The alignment at which copies from a slot are fast.
constexpr std::uint64_t slot_alignment = 64;

class Planner {
 public:
  Planner(std::span<const std::byte> mapping, const PlanOptions& options)
      : mapping_(mapping), options_(options) {}

  Result<void> add(const TensorView& view) {
    plan_.tensors.push_back(
        {view.dtype(), row_major_dims(view.shape()), view.nbytes(), view.stored_bytes().data(), 0});
    device_offset_ = 0;
    if (view.nbytes() > 0) {
      TRY(add_bytes_of(view));
    }
    plan_.tensors.back().end_batch = view.nbytes() > 0 ? plan_.batches.size() : 0;
    return {};
  }

  UploadPlan finish() && {
    find_ranges();
    return std::move(plan_);
  }

 private:
  Result<void> add_bytes_of(const TensorView& view) {
    if (view.is_contiguous() && !view.is_foreign_byte_order()) return add_stored(view.bytes());
    if (is_blocked(view.dtype())) {
      TRY_ASSIGN(const TensorSlice bytes, view.bits());
      return add_gathered(bytes, 0);
    }
    return add_gathered(view, 0);
  }

  // Cuts the bytes anywhere, and at the borders of registered ranges.
  Result<void> add_stored(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto position = static_cast<std::uint64_t>(bytes.data() - mapping_.data());
      const std::uint64_t left_in_range =
          options_.register_bytes - position % options_.register_bytes;
      const std::uint64_t length =
          std::min<std::uint64_t>({bytes.size(), options_.slot_bytes, left_in_range});
      const std::int64_t dims[] = {static_cast<std::int64_t>(length), 1};
      TRY_ASSIGN(const TensorSlice part,
                 TensorSlice::of(TensorView(DType::uint8, 1, dims, bytes.data(), length, 0)));
      put(part, !options_.gather_all);
      bytes = bytes.subspan(length);
    }
    return {};
  }

  // Cuts the view between rows; its dimensions before `dim` have one element.
  Result<void> add_gathered(const TensorView& view, std::size_t dim) {
    TRY_ASSIGN(const TensorSlice all, TensorSlice::of(view));
    if (all.nbytes() <= options_.slot_bytes) {
      put(all, false);
      return {};
    }
    while (all.shape()[dim] == 1) ++dim;
    const std::int64_t count = all.shape()[dim];
    const std::uint64_t row_bytes = all.nbytes() / static_cast<std::uint64_t>(count);
    const auto rows =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(options_.slot_bytes / row_bytes));
    for (std::int64_t row = 0; row < count; row += rows) {
      TRY_ASSIGN(const TensorSlice some, all.narrow(dim, row, std::min(rows, count - row)));
      TRY(add_gathered(some, dim));
    }
    return {};
  }

  void put(const TensorSlice& part, bool is_as_stored) {
    if (plan_.batches.empty() || options_.slot_bytes - used_ < part.nbytes()) {
      plan_.batches.push_back({plan_.transfers.size(), 0, false});
      used_ = 0;
    }
    plan_.transfers.push_back(
        {part, is_as_stored, plan_.tensors.size() - 1, device_offset_, used_, 0});
    Batch& batch = plan_.batches.back();
    ++batch.transfer_count;
    batch.needs_memory = batch.needs_memory || !is_as_stored;
    device_offset_ += part.nbytes();
    used_ = std::min(options_.slot_bytes, bytes::round_up(used_ + part.nbytes(), slot_alignment));
  }

  // Returns the pages of a piece, which cross no more multiples of register_bytes than the piece.
  ByteRange pages_of(const Transfer& transfer) const noexcept {
    const std::span<const std::byte> bytes = transfer.view.bytes();
    const auto begin = static_cast<std::uint64_t>(bytes.data() - mapping_.data());
    const std::uint64_t page = options_.page_bytes;
    const std::uint64_t first = begin / page * page;
    return {first, bytes::round_up(begin + bytes.size(), page) - first};
  }

  // Joins transfers whose pages overlap or touch, up to the next multiple of register_bytes.
  void find_ranges() {
    std::vector<Transfer*> stored;
    for (Transfer& transfer : plan_.transfers)
      if (transfer.is_as_stored) stored.push_back(&transfer);
    std::ranges::sort(stored, std::less<>(),
                      [](const Transfer* transfer) { return transfer->view.bytes().data(); });
    for (Transfer* const transfer : stored) {
      const ByteRange pages = pages_of(*transfer);
      if (plan_.ranges.empty() || !joined(plan_.ranges.back().bytes, pages))
        plan_.ranges.push_back({pages, 0});
      ++plan_.ranges.back().transfers;
      transfer->range = plan_.ranges.size() - 1;
    }
  }

  bool joined(ByteRange& range, const ByteRange& next) const noexcept {
    const std::uint64_t unit = options_.register_bytes;
    if (next.offset > range.offset + range.length || next.offset / unit != range.offset / unit)
      return false;
    range.length = std::max(range.length, next.offset + next.length - range.offset);
    return true;
  }

  std::span<const std::byte> mapping_;
  const PlanOptions& options_;
  UploadPlan plan_;
  std::uint64_t device_offset_ = 0;  // of the next piece of the last tensor
  std::uint64_t used_ = 0;           // bytes used in the last fill
};

}  // namespace

std::vector<std::int64_t> row_major_dims(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> dims(shape.begin(), shape.end());
  dims.resize(2 * shape.size());
  static_cast<void>(bytes::row_major_strides(shape, std::span(dims).last(shape.size())));
  return dims;
}

Result<UploadPlan> plan_upload(std::span<const TensorView> views,
                               std::span<const std::byte> mapping, const PlanOptions& options) {
  Planner planner(mapping, options);
  for (const TensorView& view : views) {
    TRY(planner.add(view));
  }
  return std::move(planner).finish();
}

}  // namespace weightmap::cuda
