// In which parts tensors go to a device.
#include "runtime/services/cuda/upload_plan.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/failures.hpp"

using weightmap::DType;
using weightmap::TensorView;
using weightmap::cuda::plan_upload;
using weightmap::cuda::PlanOptions;
using weightmap::cuda::Transfer;
using weightmap::cuda::UploadPlan;

namespace {

const std::vector<std::byte> mapping(1 << 16);

TensorView row_of(std::uint64_t begin, std::int64_t bytes) {
  static std::vector<std::vector<std::int64_t>> shapes;
  shapes.reserve(64);  // views borrow them
  shapes.push_back({bytes, 1});
  return TensorView(DType::uint8, 1, shapes.back().data(),
                    bytes > 0 ? mapping.data() + begin : nullptr, static_cast<std::uint64_t>(bytes),
                    0);
}

UploadPlan planned(const std::vector<TensorView>& views, const PlanOptions& options) {
  weightmap::Result<UploadPlan> plan = plan_upload(views, mapping, options);
  REQUIRE_OK(plan);
  return std::move(*plan);
}

std::string text_of(const UploadPlan& plan) {
  std::string text;
  for (const weightmap::cuda::Batch& batch : plan.batches) {
    text += batch.needs_memory ? "gather:" : "fill:";
    for (const Transfer& transfer : plan.transfers_of(batch))
      text += " " + std::to_string(transfer.tensor) + "+" + std::to_string(transfer.device_offset) +
              "/" + std::to_string(transfer.view.nbytes()) + "@" +
              std::to_string(transfer.slot_offset);
    text += "\n";
  }
  for (const weightmap::cuda::MappedRange& range : plan.ranges)
    text += "range " + std::to_string(range.bytes.offset) + "+" +
            std::to_string(range.bytes.length) + " of " + std::to_string(range.transfers) + "\n";
  return text;
}

}  // namespace

TEST_CASE("small tensors share a slot, large ones are cut, and empty ones have no part") {
  const UploadPlan plan = planned(
      {row_of(100, 10), row_of(110, 100), row_of(0, 0), row_of(4096, 9000), row_of(60000, 1)},
      {4096, 1 << 20, 4096, false});
  CHECK(text_of(plan) ==
        "fill: 0+0/10@0 1+0/100@64\n"
        "fill: 3+0/4096@0\n"
        "fill: 3+4096/4096@0\n"
        "fill: 3+8192/808@0 4+0/1@832\n"
        "range 0+16384 of 5\n"
        "range 57344+4096 of 1\n");
  CHECK(plan.tensors[0].end_batch == 1);
  CHECK(plan.tensors[1].end_batch == 1);
  CHECK(plan.tensors[2].end_batch == 0);
  CHECK(plan.tensors[3].end_batch == 4);
  CHECK(plan.tensors[4].end_batch == 4);
}

TEST_CASE("no part crosses from one range that is registered into the next") {
  const UploadPlan plan = planned({row_of(8000, 9000), row_of(100, 4)}, {16384, 8192, 4096, false});
  CHECK(text_of(plan) ==
        "fill: 0+0/192@0 0+192/8192@192 0+8384/616@8384 1+0/4@9024\n"
        "range 0+8192 of 2\n"
        "range 8192+8192 of 1\n"
        "range 16384+4096 of 1\n");
}

TEST_CASE("what is not contiguous is cut between rows, and never registered") {
  const std::int64_t dims[] = {5, 1, 3000, 6000, 1, 2};
  const TensorView strided(DType::uint8, 3, dims, mapping.data(), 29999, 0);
  CHECK(text_of(planned({strided}, {8192, 8192, 4096, false})) ==
        "gather: 0+0/6000@0\n"
        "gather: 0+6000/6000@0\n"
        "gather: 0+12000/3000@0\n");
  const std::int64_t wide[] = {1, 2, 5000, 1, 20000, 3};
  const TensorView long_rows(DType::uint8, 3, wide, mapping.data(), 34998, 0);
  CHECK(text_of(planned({long_rows}, {4096, 8192, 4096, false})) ==
        "gather: 0+0/4096@0\n"
        "gather: 0+4096/904@0\n"
        "gather: 0+5000/4096@0\n"
        "gather: 0+9096/904@0\n");
}

TEST_CASE("where memory was written to, all of it is gathered") {
  CHECK(text_of(planned({row_of(8000, 200)}, {4096, 8192, 4096, true})) ==
        "gather: 0+0/192@0 0+192/8@192\n");
}

TEST_CASE("strides are row-major, and those of an empty tensor fit") {
  using weightmap::cuda::row_major_dims;
  CHECK(row_major_dims(std::vector<std::int64_t>{2, 3, 4}) ==
        std::vector<std::int64_t>{2, 3, 4, 12, 4, 1});
  CHECK(row_major_dims({}) == std::vector<std::int64_t>{});
  const std::int64_t huge = std::int64_t{1} << 62;
  CHECK(row_major_dims(std::vector<std::int64_t>{0, huge, huge}) ==
        std::vector<std::int64_t>{0, huge, huge, 1, huge, 1});
}
