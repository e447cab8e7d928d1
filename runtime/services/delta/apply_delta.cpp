#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/formats/sets/model_files.hpp"
#include "runtime/services/delta/delta_folder.hpp"
#include "runtime/services/delta/encoding.hpp"
#include "runtime/services/delta/model_version.hpp"
#include "runtime/services/delta/sums.hpp"
#include "runtime/system/file/directory.hpp"
#include "runtime/system/write/new_folder.hpp"
#include "runtime/system/write/replace.hpp"
#include "runtime/system/write/write_all.hpp"
#include "weightmap/delta.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;
using delta::Change;
using delta::DeltaFolder;

// The model that deltas are applied to.
struct Base {
  static Result<Base> open(const fs::path& folder, const ApplyOptions& options) {
    std::error_code unknown;
    if (fs::exists(folder, unknown) && !fs::is_directory(folder, unknown))
      return failure(ErrorCode::invalid_argument,
                     "is a file: give the folder of the model, whose version it then has");
    TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::open(folder, options.open));
    const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
    if (state.info.format != Format::safetensors)
      return failure(ErrorCode::unsupported,
                     "is " + std::string(to_string(state.info.format)) +
                         ", and deltas are for safetensors: convert it first");
    fs::path real = state.sources.front().info.path.parent_path();
    TRY_ASSIGN(std::string version, options.base_version
                                        ? Result<std::string>(*options.base_version)
                                        : delta::version_of(real, checkpoint));
    return Base{std::move(checkpoint), std::move(real), std::move(version)};
  }

  const Checkpoint::State& state() const noexcept { return Checkpoint::Access::state(checkpoint); }
  const Sources& sources() const noexcept { return state().sources; }

  Checkpoint checkpoint;
  fs::path folder;
  std::string version;
};

// Fails unless each delta is for the version that the one before it makes.
Result<void> check_chain(const Base& base, const std::vector<DeltaFolder>& deltas) {
  std::string_view version = base.version;
  for (const DeltaFolder& next : deltas) {
    if (!delta::is_same_version(next.base_version, version))
      return about_file({ErrorCode::invalid_argument,
                         "is for version " + bytes::quote(next.base_version) + ", and " +
                             (&next == &deltas.front() ? "the base is" : "the delta before makes") +
                             " version " + bytes::quote(version)},
                        next.index);
    version = next.version;
  }
  return {};
}

// One frame of the chain.
struct Step {
  const DeltaFolder* folder;
  const DeltaFolder::Tensor* tensor;
};

// A tensor that changes.
struct ChangedTensor {
  std::size_t source;  // its file
  ByteRange range;     // in it
  std::vector<Step> steps;
};

using ChangedTensors = std::map<std::size_t, ChangedTensor>;  // by the index in the base

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
      Result<void> fits = delta::check_frame(folder.encoding, folder.files[tensor.file].file,
                                             tensor.frame, entry.range.length);
      if (!fits) return tl::unexpected<Error>(folder.about(tensor, std::move(fits).error()));
    }
  return changed;
}

// A range of a file of the new version: copied, or a tensor that changes.
struct Piece {
  std::size_t source;
  ByteRange range;
  const ChangedTensor* changed;  // nullptr: copied
};

// What is copied is divided, so that threads can share it.
constexpr std::uint64_t copied_at_a_time = std::uint64_t{64} << 20;

void add_copies(std::vector<Piece>& pieces, std::size_t source, std::uint64_t begin,
                std::uint64_t end) {
  for (; begin < end; begin += copied_at_a_time)
    pieces.push_back({source, {begin, std::min(copied_at_a_time, end - begin)}, nullptr});
}

// The files of the weights of a new version, which are written by several threads.
class NewWeights {
 public:
  NewWeights(const Base& base, const fs::path& folder, const ApplyOptions& options)
      : base_(base), folder_(folder), options_(options) {}

  Result<void> write(const ChangedTensors& changed) {
    for (const SourceFile& source : base_.sources())
      TRY(about_file(create(source), source.info.path));
    const std::vector<Piece> pieces = plan(changed);
    for (const Piece& piece : pieces) all_ += piece.range.length;
    const std::size_t threads = options_.threads != 0
                                    ? options_.threads
                                    : std::max<std::size_t>(1, std::thread::hardware_concurrency());
    TRY(parallel_for(pieces.size(), threads,
                     [&](std::size_t number) { return write(pieces[number]); }));
    for (File& file : files_) TRY(about_file(file.file.commit(NewFile::Existing::refuse), folder_));
    return {};
  }

  // Of the files that began as reflinks.
  std::uint64_t shared_bytes() const noexcept { return shared_bytes_; }

 private:
  struct File {
    NewFile file;
    bool is_reflink;  // holds what the old one has
  };

  Result<void> create(const SourceFile& source) {
    const fs::path path = folder_ / source.info.path.lexically_relative(base_.folder);
    std::error_code failed;
    fs::create_directories(path.parent_path(), failed);
    TRY_ASSIGN(NewFile file, NewFile::create(path, {.durable = false}));
    const bool is_reflink = os::share_blocks(file.descriptor(), source.file).has_value();
    if (is_reflink)
      shared_bytes_ += source.file.size();
    else
      TRY(file.reserve(source.file.size()));
    TRY_ASSIGN(const os::UniqueFd beside, os::open_directory(source.info.path.parent_path()));
    TRY(os::take_permissions_of(beside.get(), source.info.path.filename(), file.descriptor()));
    files_.push_back({std::move(file), is_reflink});
    return {};
  }

  // The pieces of all files, of which those that take long come first.
  std::vector<Piece> plan(const ChangedTensors& changed) const {
    std::vector<std::vector<const ChangedTensor*>> of_file(files_.size());
    for (const auto& [index, tensor] : changed) of_file[tensor.source].push_back(&tensor);
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      std::ranges::sort(of_file[i], {}, [](const ChangedTensor* t) { return t->range.offset; });
      std::uint64_t end = 0;
      for (const ChangedTensor* tensor : of_file[i]) {
        if (!files_[i].is_reflink) add_copies(pieces, i, end, tensor->range.offset);
        pieces.push_back({i, tensor->range, tensor});
        end = tensor->range.offset + tensor->range.length;
      }
      if (!files_[i].is_reflink) add_copies(pieces, i, end, base_.sources()[i].file.size());
    }
    std::ranges::stable_sort(pieces, std::greater<>(), [](const Piece& piece) {
      return std::pair(piece.changed != nullptr, piece.range.length);
    });
    return pieces;
  }

  Result<void> write(const Piece& piece) {
    if (piece.changed != nullptr) return change(*piece.changed);
    return each_window(piece.source, piece.range,
                       [](std::span<std::byte>) { return Result<void>(); });
  }

  // Writes the range of the file, each window of it after `work` has changed it.
  template <class Work>
  Result<void> each_window(std::size_t source, ByteRange range, const Work& work) {
    const SourceFile& from = base_.sources()[source];
    std::vector<std::byte> memory(std::min<std::uint64_t>(delta::window_bytes, range.length));
    for (std::uint64_t done = 0; done < range.length;) {
      const std::uint64_t at = range.offset + done;
      // Windows end at multiples of their size, so that files get whole pages.
      const std::uint64_t most = delta::window_bytes - at % delta::window_bytes;
      const std::span window = std::span(memory).first(std::min(most, range.length - done));
      TRY(about_file(from.file.read(at, window), from.info.path));
      TRY(work(window));
      TRY(about_file(files_[source].file.write_at(at, window), folder_));
      done += window.size();
      TRY(advance(window.size()));
    }
    return {};
  }

  // Applies all steps to each window, so that no version between is written, and compares the
  // tensor with the sum of each.
  Result<void> change(const ChangedTensor& tensor) {
    struct Running {
      const Step* step;
      std::unique_ptr<Change> change;
      delta::RunningSum sum;
    };
    std::vector<Running> running;
    const auto of_step = [](const Step& step, Error error) {
      return passed_on(step.folder->about(*step.tensor, std::move(error)));
    };
    for (const Step& step : tensor.steps) {
      Result<std::unique_ptr<Change>> change =
          Change::open(step.folder->encoding, step.folder->files[step.tensor->file].file,
                       step.tensor->frame, tensor.range.length);
      if (!change) return of_step(step, std::move(change).error());
      running.push_back({&step, *std::move(change), delta::RunningSum(step.folder->sum)});
    }
    TRY(each_window(tensor.source, tensor.range, [&](std::span<std::byte> window) -> Result<void> {
      for (Running& next : running) {
        Result<void> applied = next.change->apply(window);
        if (!applied) return of_step(*next.step, std::move(applied).error());
        next.sum.add(window);
      }
      return {};
    }));
    for (Running& next : running) {
      Result<void> finished = next.change->finish();
      if (finished) finished = compare(*next.step, next.sum.text());
      if (!finished) return of_step(*next.step, std::move(finished).error());
    }
    return {};
  }

  static Result<void> compare(const Step& step, const std::string& sum) {
    if (sum == step.tensor->sum) return {};
    return failure(ErrorCode::corrupt,
                   "would have the sum " + sum + ", and version " +
                       bytes::quote(step.folder->version) + " has " + step.tensor->sum +
                       ": the base is not what this delta was made for, or one of them is damaged");
  }

  Result<void> advance(std::uint64_t bytes) {
    if (!options_.progress) return {};
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    return go_on(options_.progress, done_, all_);
  }

  const Base& base_;
  const fs::path& folder_;
  const ApplyOptions& options_;
  std::vector<File> files_;  // as the sources of the base
  std::uint64_t shared_bytes_ = 0;
  std::mutex mutex_;
  std::uint64_t done_ = 0;  // protected by the mutex
  std::uint64_t all_ = 0;
};

// Copies what servers read beside the weights.
Result<void> copy_beside(const Base& base, const fs::path& folder) {
  std::error_code failed;
  for (fs::directory_iterator entry(base.folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::error_code refused;
    if (!entry->is_regular_file(refused) ||
        !sets::lies_beside_weights(entry->path().filename().native(), entry->file_size(refused)))
      continue;
    fs::copy_file(entry->path(), folder / entry->path().filename(), refused);
    if (refused && refused != std::errc::file_exists)
      return about_file({ErrorCode::io, "cannot copy it: " + refused.message()}, entry->path());
  }
  if (failed) return about_file({ErrorCode::io, failed.message()}, base.folder);
  return {};
}

// Begins the new folder; nullopt: it is there already, of this version.
Result<std::optional<os::NewFolder>> begin(const fs::path& to, const std::string& version,
                                           const ApplyOptions& options) {
  if (!options.once) return os::NewFolder::create(to);
  constexpr std::chrono::milliseconds pause(10);
  for (;;) {
    Result<std::optional<os::NewFolder>> begun = os::NewFolder::begin(to);
    if (begun && begun->has_value()) return begun;
    if (std::error_code unknown; !begun && !fs::exists(to, unknown)) return begun;
    if (!begun) break;
    TRY(go_on(options.progress, 0, 1));
    std::this_thread::sleep_for(pause);
  }
  TRY_ASSIGN(const std::string found, delta::recorded_version(to));
  if (found == version) return std::nullopt;
  return failure(ErrorCode::invalid_argument, "is there already, with version " +
                                                  bytes::quote(found) + " and not " +
                                                  bytes::quote(version));
}

Result<void> write_text(const fs::path& path, const std::string& text) {
  TRY_ASSIGN(NewFile file, NewFile::create(path, {.durable = false}));
  TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

// Fails with io if what was read has changed meanwhile.
Result<void> check_unchanged(const Base& base, const std::vector<DeltaFolder>& deltas) {
  for (const SourceFile& source : base.sources())
    TRY(about_file(source.file.check_unchanged(), source.info.path));
  for (const DeltaFolder& folder : deltas) TRY(folder.check_unchanged());
  return {};
}

}  // namespace

Result<std::string> model_version(const fs::path& folder) {
  TRY_ASSIGN(Base base, about_file(Base::open(folder, {}), folder));
  return std::move(base.version);
}

Result<ApplyReport> apply_delta(const fs::path& base_folder, std::span<const fs::path> folders,
                                const fs::path& to, const ApplyOptions& options) {
  if (folders.empty()) return failure(ErrorCode::invalid_argument, "there is no delta to apply");
  TRY_ASSIGN(const Base base, about_file(Base::open(base_folder, options), base_folder));
  std::vector<DeltaFolder> deltas;
  for (const fs::path& folder : folders) {
    TRY_ASSIGN(DeltaFolder opened, DeltaFolder::open(folder, options.open.limits));
    deltas.push_back(std::move(opened));
  }
  TRY(check_chain(base, deltas));
  TRY_ASSIGN(const ChangedTensors changed, find_changed(base, deltas));

  ApplyReport report;
  report.version = deltas.back().version;
  report.base_version = base.version;
  report.deltas = deltas.size();
  report.tensors = base.checkpoint.tensors().size();
  report.changed_tensors = changed.size();
  for (const DeltaFolder& folder : deltas) report.delta_bytes += folder.bytes;
  TRY_ASSIGN(std::optional<os::NewFolder> folder,
             about_file(begin(to, report.version, options), to));
  report.made = folder.has_value();
  for (const SourceFile& source : base.sources()) {
    report.bytes += source.file.size();
    report.files.push_back(to / source.info.path.lexically_relative(base.folder));
  }
  if (!folder) return report;
  NewWeights weights(base, folder->filled(), options);
  TRY(weights.write(changed));
  report.shared_bytes = weights.shared_bytes();
  TRY(copy_beside(base, folder->filled()));
  TRY(about_file(write_text(folder->filled() / delta::version_name,
                            delta::version_text(report.version, report.base_version)),
                 to));
  TRY(check_unchanged(base, deltas));
  TRY(about_file(folder->commit(options.durable), to));
  return report;
}

}  // namespace weightmap
