#include "tools/run/weights_reader.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <vector>

#include "mmap/pages/page_cache.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"
#include "tools/run/dropped_pages.hpp"
#include "tools/run/named_models.hpp"
#include "tools/run/start_reader.hpp"
#include "tools/support/files.hpp"
#include "tools/support/text.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::cli::start {
namespace {

namespace fs = std::filesystem;

void read_small_files(const fs::path& folder, const std::atomic<bool>& stopped) {
  StartPlan plan;
  for (const fs::path& file : small_files_of(folder)) {
    std::error_code error;
    const fs::path target = fs::canonical(file, error);  // the hub's cache has links
    if (const Result<Generation> known = generation_at(target); known && !error)
      plan.files.push_back({target.native(), known->size, known->mtime_ns, {}});
  }
  read_start(plan, stopped);
}

bool is_all_cached(const Checkpoint& checkpoint) {
  const std::vector<SourceInfo> files = files_of(checkpoint);
  return std::all_of(files.begin(), files.end(), [](const SourceInfo& source) {
    const Result<os::File> file = os::File::open(source.path, false);
    if (!file) return false;
    const Result<std::uint64_t> cached = mmap::cached_bytes_of(*file);
    return cached && *cached == file->size();
  });
}

// Recorded tensors come first, then the file in its order.
std::vector<std::size_t> order_of(const Checkpoint& checkpoint, const fs::path& model) {
  const fs::path path = model.native() + ".order";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  Result<TensorOrder> order = load_tensor_order(checkpoint, path);
  if (!order) return {};
  std::vector<bool> is_named(checkpoint.tensors().size());
  for (const std::size_t tensor : order->tensors) is_named[tensor] = true;
  for (std::size_t i = 0; i < is_named.size(); ++i)
    if (!is_named[i]) order->tensors.push_back(i);
  return std::move(order->tensors);
}

Result<WeightsRead> warm(const fs::path& model, const std::atomic<bool>& stopped) {
  WeightsRead read;
  if (drops_pages_at_open(model)) {
    read.trouble =
        printable(model.native()) +
        ": is not read ahead: its file system drops what is in memory of a file whenever "
        "anybody opens the file; weightmap stage copies it into shared memory";
    return read;
  }
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(model));
  std::error_code ignored;
  if (fs::is_directory(model, ignored)) read_small_files(model, stopped);
  for (const SourceInfo& file : files_of(checkpoint)) read.all_bytes += file.bytes;
  if (is_all_cached(checkpoint)) return read;
  WarmOptions options;
  options.tensors = order_of(checkpoint, model);
  options.one_reader = true;
  options.for_others = true;
  TRY_ASSIGN(Warmer warmer, Warmer::start(checkpoint, options));
  while (!warmer.wait_for(std::chrono::milliseconds(20)))
    if (stopped) warmer.cancel();
  TRY_ASSIGN(const WarmReport report, warmer.wait());
  read.bytes = report.bytes_done;
  if (report.bytes_left_out > 0)
    read.trouble = printable(model.native()) + ": " + std::to_string(report.bytes_left_out) +
                   " bytes do not fit into memory (" + report.budget_reason + ")";
  return read;
}

}  // namespace

WeightsRead read_weights(const fs::path& model, const std::atomic<bool>& stopped) {
  const Result<WeightsRead> read = warm(model, stopped);
  if (read) return *read;
  WeightsRead failed;
  failed.trouble = to_string(read.error());
  return failed;
}

}  // namespace weightmap::cli::start
