// Plans a checkpoint of many small tensors once, in this fresh process, and prints what a tensor
// cost as one JSON object.
//
//   plan_once COUNT [SIZE...]
//
// Each tensor has a name as those of models, a storage of its own and float32 elements in 4x4, or
// in as many as each SIZE says, in turn. `values_ns` is building the tree of values by
// CheckpointWriter, `plan_ns` its plan(): data.pkl and the place of every record. `layout_ns` is
// what the places alone take, on a plan of their own. All of it is time of the processor: nothing
// waits, and a busy machine should not count.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "runtime/zip/plan.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace {

using weightmap::Result;
using weightmap::Value;

double nanoseconds(std::clock_t duration, std::size_t count) {
  return static_cast<double>(duration) * (1e9 / CLOCKS_PER_SEC) / static_cast<double>(count);
}

std::vector<std::string> names_of(std::size_t count) {
  std::vector<std::string> names;
  names.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    names.push_back("layers." + std::to_string(i) + ".weight");
  return names;
}

Value state_dict(weightmap::CheckpointWriter& writer, const std::vector<std::string>& names,
                 const std::vector<std::int64_t>& sizes) {
  std::vector<Value> items;
  items.reserve(2 * names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::int64_t rows = sizes[i % sizes.size()];
    const std::int64_t shape[] = {rows, 4};
    const std::int64_t strides[] = {4, 1};
    const auto bytes = static_cast<std::uint64_t>(rows) * 4 * sizeof(float);
    const std::size_t storage = writer.add_storage(weightmap::RecordContent::zeros(bytes));
    items.push_back(writer.values().string(names[i]));
    items.push_back(writer.tensor(storage, {.sizes = shape, .strides = strides}));
  }
  return writer.ordered_dict(items);
}

Result<std::uint64_t> lay_out(std::size_t count) {
  auto plan = weightmap::zip::Plan::make("archive", 64);
  for (std::size_t i = 0; i < count; ++i)
    if (const auto added = plan->add("data/" + std::to_string(i), 64); !added)
      return tl::unexpected<weightmap::Error>(added.error());
  return plan->archive_bytes();
}

int fail(const weightmap::Error& error) {
  std::fprintf(stderr, "plan_once: %s\n", to_string(error).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  std::vector<std::int64_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  if (count == 0) {
    std::fprintf(stderr, "usage: plan_once COUNT [SIZE...]\n");
    return 2;
  }
  if (sizes.empty()) sizes.push_back(4);
  const std::vector<std::string> names = names_of(count);
  const std::clock_t start = std::clock();
  weightmap::CheckpointWriter writer;
  const Value root = state_dict(writer, names, sizes);
  const std::clock_t built = std::clock();
  const auto plan = writer.plan(root, "archive.pt");
  const std::clock_t planned = std::clock();
  if (!plan) return fail(plan.error());
  const std::clock_t alone = std::clock();
  const auto places = lay_out(count);
  const std::clock_t laid_out = std::clock();
  if (!places) return fail(places.error());
  std::printf(
      "{\"tensors\": %zu, \"ns\": %.1f, \"values_ns\": %.1f, \"plan_ns\": %.1f, "
      "\"layout_ns\": %.1f, \"archive_bytes\": %llu}\n",
      count, nanoseconds(planned - start, count), nanoseconds(built - start, count),
      nanoseconds(planned - built, count), nanoseconds(laid_out - alone, count),
      static_cast<unsigned long long>(plan->archive_bytes));
  return 0;
}
