#include "runtime/services/delta/chain.hpp"

#include <algorithm>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/delta/change_journal.hpp"
#include "runtime/services/delta/model_version.hpp"

namespace weightmap::delta {
namespace {

namespace fs = std::filesystem;

// Fails unless each delta is for the version that the one before it makes.
Result<void> check_chain(const Base& base, const std::vector<DeltaFolder>& deltas) {
  std::string_view version = base.version;
  for (const DeltaFolder& next : deltas) {
    if (!is_same_version(next.base_version, version))
      return about_file({ErrorCode::invalid_argument,
                         "is for version " + bytes::quote(next.base_version) + ", and " +
                             (&next == &deltas.front() ? "the base is" : "the delta before makes") +
                             " version " + bytes::quote(version)},
                        next.index);
    version = next.version;
  }
  return {};
}

// Of the frames of one tensor, which are decompressed at once. Writers of this format use windows
// of 0.5 to 8 MiB, and none is read that has more than 128 MiB, zstd's own limit.
constexpr std::uint64_t most_memory = std::uint64_t{512} << 20;

// Checks the last step of the tensor.
Result<void> add_memory(ChangedTensor& changed) {
  const auto& [folder, tensor] = changed.steps.back();
  TRY_ASSIGN(const std::uint64_t needed,
             check_frame(folder->encoding, folder->files[tensor->file].file, tensor->frame,
                         changed.range.length));
  if (bytes::checked_add(changed.memory, needed, &changed.memory) && changed.memory <= most_memory)
    return {};
  return failure(ErrorCode::limit_exceeded,
                 "its frames need " + std::to_string(changed.memory) +
                     " bytes of memory at once, more than " + std::to_string(most_memory) +
                     "; apply fewer deltas at a time than " + std::to_string(changed.steps.size()),
                 tensor->frame.offset);
}

// Finds the tensors of the base that the deltas change.
Result<ChangedTensors> find_changed(const Base& base, const std::vector<DeltaFolder>& deltas) {
  ChangedTensors changed;
  const Checkpoint::State& state = base.state();
  for (const DeltaFolder& folder : deltas)
    for (const DeltaFolder::Tensor& tensor : folder.tensors) {
      const Result<std::uint32_t> index = state.index_of(tensor.name);
      if (!index) {
        Error missing = index.error();
        missing.message.insert(0, "changes a tensor that the base has not: ");
        return about_file({ErrorCode::corrupt, missing.message}, folder.files[tensor.file].path);
      }
      const NamedTensor found = base.checkpoint.tensors()[*index];
      ChangedTensor& entry = changed[*index];
      entry.source = found.source;
      entry.range = {found.file_offset, found.view.nbytes()};
      entry.steps.push_back({&folder, &tensor});
      Result<void> fits = add_memory(entry);
      if (!fits) return tl::unexpected<Error>(folder.about(tensor, std::move(fits).error()));
    }
  return changed;
}

tl::unexpected<Error> of_step(const Step& step, Error error) {
  return passed_on(step.folder->about(*step.tensor, std::move(error)));
}

}  // namespace

std::size_t threads_of(std::size_t asked) noexcept {
  return asked != 0 ? asked : std::max<std::size_t>(1, std::thread::hardware_concurrency());
}

Result<void> check_ended(const fs::path& folder) {
  if (!ChangeJournal::is_in(folder)) return {};
  return failure(
      ErrorCode::invalid_argument,
      "has bytes of two versions, since a change in place was not ended; `weightmap apply "
      "--in-place` of the model with the same deltas ends it");
}

Result<Base> Base::open(const fs::path& folder, const fs::path& name, const ApplyOptions& options) {
  std::error_code unknown;
  fs::path resolved = fs::canonical(folder, unknown);
  if (unknown) resolved = folder;  // org/name, or nothing
  if (fs::exists(resolved, unknown) && !fs::is_directory(resolved, unknown))
    return failure(ErrorCode::invalid_argument,
                   "is a file: give the folder of the model, whose version it then has");
  TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::open(resolved, options.open));
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  if (state.info.format != Format::safetensors)
    return failure(ErrorCode::unsupported,
                   "is " + std::string(to_string(state.info.format)) +
                       ", and deltas are for safetensors: convert it first");
  fs::path real = state.sources.front().info.path.parent_path();
  TRY_ASSIGN(FilesBeside beside, FilesBeside::list(real));
  TRY_ASSIGN(std::string version,
             options.base_version ? Result<std::string>(*options.base_version)
                                  : version_of(real, name == folder ? resolved : name, checkpoint));
  if (!checkpoint.is_current())
    return failure(ErrorCode::io, "was replaced or written to while it was opened");
  return Base{std::move(checkpoint), std::move(real), std::move(beside), std::move(version)};
}

Result<Chain> Chain::open(const fs::path& base, const fs::path& name,
                          std::span<const fs::path> folders, const ApplyOptions& options) {
  if (folders.empty()) return failure(ErrorCode::invalid_argument, "there is no delta to apply");
  TRY_ASSIGN(Base opened, about_file(Base::open(base, name, options), base));
  Chain chain{std::move(opened), {}, {}};
  for (const fs::path& folder : folders) {
    TRY_ASSIGN(DeltaFolder delta, DeltaFolder::open(folder, options.open.limits));
    chain.deltas.push_back(std::move(delta));
  }
  TRY(check_chain(chain.base, chain.deltas));
  TRY_ASSIGN(chain.changed, find_changed(chain.base, chain.deltas));
  return chain;
}

ApplyReport Chain::report(const fs::path& folder) const {
  ApplyReport report;
  report.version = deltas.back().version;
  report.base_version = base.version;
  report.deltas = deltas.size();
  report.tensors = base.checkpoint.tensors().size();
  report.changed_tensors = changed.size();
  for (const DeltaFolder& delta : deltas) report.delta_bytes += delta.bytes;
  for (const SourceFile& source : base.sources()) {
    report.bytes += source.file.size();
    report.files.push_back(folder / source.info.path.lexically_relative(base.folder));
  }
  return report;
}

std::vector<DeltaFolder> Chain::close() && {
  Chain closed = std::move(*this);
  return std::move(closed.deltas);
}

Result<void> Chain::check_unchanged() const {
  for (const SourceFile& source : base.sources())
    TRY(about_file(source.file.check_unchanged(), source.info.path));
  TRY(base.beside.check_unchanged());
  for (const DeltaFolder& delta : deltas) TRY(delta.check_unchanged());
  return {};
}

Result<TensorChange> TensorChange::open(const ChangedTensor& tensor) {
  TensorChange made;
  for (const Step& step : tensor.steps) {
    Result<std::unique_ptr<Change>> change =
        Change::open(step.folder->encoding, step.folder->files[step.tensor->file].file,
                     step.tensor->frame, tensor.range.length);
    if (!change) return of_step(step, std::move(change).error());
    made.running_.push_back({&step, *std::move(change), RunningSum(step.folder->sum)});
  }
  return made;
}

Result<void> TensorChange::apply(std::span<std::byte> window) {
  for (Running& next : running_) {
    Result<void> applied = next.change->apply(window);
    if (!applied) return of_step(*next.step, std::move(applied).error());
    if (knows_sums_) next.sum.add(window);
  }
  return {};
}

Result<void> TensorChange::skip(std::uint64_t bytes) {
  knows_sums_ = knows_sums_ && bytes == 0;
  std::vector<std::byte> scratch(std::min<std::uint64_t>(window_bytes, bytes));
  while (bytes != 0) {
    const std::span part = std::span(scratch).first(std::min<std::uint64_t>(bytes, scratch.size()));
    TRY(apply(part));
    bytes -= part.size();
  }
  return {};
}

Result<void> TensorChange::finish() {
  for (Running& next : running_) {
    Result<void> finished = next.change->finish();
    if (finished && knows_sums_) finished = compare_sum(*next.step, next.sum.text());
    if (!finished) return of_step(*next.step, std::move(finished).error());
  }
  return {};
}

Result<void> compare_sum(const Step& step, const std::string& sum) {
  if (sum == step.tensor->sum) return {};
  return failure(ErrorCode::corrupt,
                 "would have the sum " + sum + ", and version " +
                     bytes::quote(step.folder->version) + " has " + step.tensor->sum +
                     ": the base is not what this delta was made for, or one of them is damaged");
}

}  // namespace weightmap::delta
