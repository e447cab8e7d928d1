#include "tools/run/weights_reader.hpp"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/system/file/mount.hpp"
#include "runtime/system/memory/memory_limit.hpp"
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

// None unless the file is there under a name.
std::optional<PlannedFile> planned_file(const SourceInfo& source) {
  std::error_code error;
  const fs::path path = fs::canonical(source.path, error);
  if (error || source.bytes == 0) return std::nullopt;
  return PlannedFile{path.native(), source.bytes, source.generation.mtime_ns, {}};
}

void add_recorded_tensors(const Checkpoint& checkpoint, const fs::path& order, StartPlan& plan) {
  const Result<TensorOrder> recorded = load_tensor_order(checkpoint, order);
  if (!recorded) return;
  for (const std::size_t at : recorded->tensors) {
    const NamedTensor tensor = checkpoint.tensors()[at];
    std::optional<PlannedFile> file = planned_file(checkpoint.source(tensor.source));
    if (!file || tensor.is_copied || tensor.view.nbytes() == 0) continue;
    file->parts = {{tensor.file_offset, tensor.view.nbytes()}};
    plan.files.push_back(std::move(*file));
  }
}

bool comes_from_server(const std::optional<os::Mount>& mount) {
  return mount && os::is_remote(mount->file_system);
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
  const StartPlan plan = weights_plan(checkpoint, model);
  if (const auto cached = cached_bytes_of(plan); cached && *cached == plan.planned_bytes())
    return read;
  const std::size_t threads =
      comes_from_server(os::mount_of(model)) ? PlanReading::of_a_server : PlanReading::of_a_disk;
  const ReadCounts counts = PlanReading(plan, stopped, threads).run();
  read.bytes = counts.bytes;
  if (counts.ran_out_of_memory)
    read.trouble = printable(model.native()) + ": not all of it fits into memory (" +
                   os::memory_limit().reason + ")";
  return read;
}

}  // namespace

StartPlan weights_plan(const Checkpoint& checkpoint, const fs::path& model) {
  StartPlan plan;
  const fs::path order = model.native() + ".order";
  std::error_code ignored;
  if (fs::exists(order, ignored)) add_recorded_tensors(checkpoint, order, plan);
  for (const SourceInfo& source : files_of(checkpoint))
    if (std::optional<PlannedFile> file = planned_file(source))
      plan.files.push_back(std::move(*file));
  return plan;
}

bool comes_another_way(const fs::path& model, const StartPlan& plan) {
  const auto most = std::ranges::max_element(plan.files, {}, &PlannedFile::planned_bytes);
  if (most == plan.files.end()) return false;
  const std::optional<os::Mount> here = os::mount_of(model),
                                 there = os::mount_of(fs::path(most->path));
  return comes_from_server(here) && there && here->number != there->number;
}

WeightsRead read_weights(const fs::path& model, const std::atomic<bool>& stopped) {
  const Result<WeightsRead> read = warm(model, stopped);
  if (read) return *read;
  WeightsRead failed;
  failed.trouble = to_string(read.error());
  return failed;
}

}  // namespace weightmap::cli::start
