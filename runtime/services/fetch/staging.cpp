#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "mmap/memory/memory_to_fill.hpp"
#include "mmap/pages/smaps.hpp"
#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/open.hpp"
#include "runtime/services/fetch/compare_sum.hpp"
#include "runtime/services/fetch/destination.hpp"
#include "runtime/services/fetch/fetched_version.hpp"
#include "runtime/services/fetch/fetching.hpp"
#include "runtime/services/fetch/file_content.hpp"
#include "runtime/services/fetch/running_sum.hpp"
#include "runtime/services/warm/staged_file.hpp"
#include "runtime/system/memory/sealed_memory.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap {

// The new file that is filled: one without a name, or one that gets its name last.
struct NewCopy {
  os::UniqueFd memory;
  std::optional<NewFile> named;
  std::filesystem::path path;

  int descriptor() const noexcept { return named ? named->descriptor() : memory.get(); }
};

// Receives the file in it.
class IntoMemory final : public Destination {
 public:
  // The memory, which has the size of the file, must outlive this.
  explicit IntoMemory(mmap::MemoryToFill& memory) noexcept : memory_(memory) {}

  // Fresh pages cost as much as to receive what goes there.
  bool prepare(ByteRange range) override {
    const Result<bool> allocated = memory_.allocate(range.offset, range.length);
    if (!allocated || !*allocated) return false;  // memory_for() will say why
    memory_.fault_in(range.offset, range.length);
    return true;
  }
  Result<std::optional<std::span<std::byte>>> memory_for(ByteRange range) override {
    TRY(memory_.allocate(range.offset, range.length));
    return memory_.bytes().subspan(range.offset, range.length);
  }
  Result<void> keep(ByteRange, std::span<std::byte>) override { return {}; }

 private:
  mmap::MemoryToFill& memory_;
};

namespace {

Result<NewCopy> make_copy(const std::filesystem::path& path, const std::string& source_name,
                          std::uint64_t bytes) {
  NewCopy copy{{}, {}, path};
  if (!path.empty()) {
    TRY_ASSIGN(copy.named, create_named_copy(path, bytes));
    return copy;
  }
  const std::string label = "weightmap:" + std::filesystem::path(source_name).filename().string();
  TRY_ASSIGN(copy.memory, os::make_memfd(bytes, label));
  return copy;
}

// Opens the metadata, which arrives in the copy.
Result<Checkpoint> open_in(const NewCopy& copy, std::shared_ptr<RangeSource> source,
                           Identified known) {
  TRY_ASSIGN(std::shared_ptr<ArrivingFile> file,
             ArrivingFile::make(std::move(source), std::move(known), copy.descriptor()));
  TRY_ASSIGN(const OpenOptions options, with_defaults(OpenOptions::to_look()));
  TRY_ASSIGN(Checkpoint opened, open_arriving(std::move(file), options, ViewMemory::mapped));
  if (!Checkpoint::Access::state(opened).is_set()) return opened;
  return failure(ErrorCode::unsupported,
                 "is a checkpoint of several files; fetch it into a folder, which may be one of "
                 "/dev/shm, or stage each file by its name");
}

bytes::RangeSet arrived_of(const SourceFile& source) {
  bytes::RangeSet arrived;
  for (const ByteRange& range : source.remote->arrived()) arrived.add(range);
  return arrived;
}

}  // namespace

struct Staging::State {
  State(NewCopy made, mmap::MemoryToFill mapped, Checkpoint opened, FetchOptions how)
      : options(std::move(how)),
        checkpoint(std::move(opened)),
        copy(std::move(made)),
        memory(std::move(mapped)) {
    source().remote->hand_over([this](ByteRange range) { return fetching.wait(range); });
    for (const ByteRange& range : source().remote->arrived())
      fetching.add_present(range, memory->bytes().subspan(range.offset, range.length));
  }
  ~State() { stop(); }

  void stop() {
    fetching.cancel();
    if (thread.joinable()) thread.join();
  }

  const SourceFile& source() const noexcept {
    return Checkpoint::Access::state(checkpoint).sources.front();
  }
  FetchPlan plan() const {
    return plan_of(Checkpoint::Access::state(checkpoint), source(), arrived_of(source()), sums,
                   options);
  }

  RunningSum* start_sum() {
    if (!known || !known->digest) return nullptr;
    return &whole.emplace(memory->bytes().first(source().file.size()));
  }
  void unmap() noexcept {
    whole.reset();
    memory.reset();
  }

  void run() {
    fetched = fetching.run(options.progress);
    time = std::chrono::steady_clock::now() - began;
  }
  Result<StagedFile> finish();
  Result<void> seal(StagedFile::State& staged);
  FetchReport report() const;

  const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  const FetchOptions options;
  Checkpoint checkpoint;
  NewCopy copy;
  std::optional<mmap::MemoryToFill> memory;  // of the copy, until that is sealed
  IntoMemory destination{*memory};
  StorageSums sums = sums_of(Checkpoint::Access::state(checkpoint), source(), options);
  const Result<KnownSum> known =
      known_sum(source().name_beside, *source().remote->source(), options);
  std::optional<RunningSum> whole;  // if a digest is known
  Fetching fetching{*source().remote->source(), destination, plan(), sums,
                    source().file.size(),       start_sum()};
  bool is_compared = false;  // with what is known, if it is
  Result<void> fetched;      // once the thread has ended
  std::atomic<std::chrono::steady_clock::duration> time{
      std::chrono::steady_clock::duration()};  // likewise
  std::thread thread;
};

namespace {

std::uint64_t bytes_in(const bytes::RangeSet& ranges) {
  std::uint64_t all = 0;
  for (const ByteRange& range : ranges.ranges()) all += range.length;
  return all;
}

// What `failed` has of this version.
bytes::RangeSet kept_of(const Staging::State* failed, const RemoteVersion& version) {
  const bool has_same = failed != nullptr && failed->memory && is_exact(version) &&
                        failed->source().remote->version() == version;
  return has_same ? failed->fetching.kept() : bytes::RangeSet();
}

Result<std::unique_ptr<Staging::State>> prepare(std::shared_ptr<RangeSource> source,
                                                const RemoteStageOptions& options,
                                                Staging::State* failed = nullptr) {
  std::filesystem::path path;
  if (!options.name.empty()) {
    TRY_ASSIGN(path, path_of_copy(options.name));
  }
  TRY_ASSIGN(Identified known, identify(*source, first_reads(source->name()), Ends::in_turn));
  const std::uint64_t bytes = known.version.size;
  const bytes::RangeSet kept = kept_of(failed, known.version);
  NewCopy copy;
  if (kept.ranges().empty()) {
    TRY(check_fits(bytes, options.budget_bytes, !path.empty()));
    TRY_ASSIGN(copy, make_copy(path, source->name(), bytes));
  } else {
    TRY(check_fits(bytes - bytes_in(kept), options.budget_bytes, !path.empty()));
    failed->unmap();
    copy = std::move(failed->copy);
    copy.path = path;
  }
  TRY_ASSIGN(Checkpoint opened, open_in(copy, source, std::move(known)));
  for (const ByteRange& range : kept.ranges())
    Checkpoint::Access::state(opened).sources.front().remote->add_arrived(range);
  TRY_ASSIGN(mmap::MemoryToFill memory, mmap::MemoryToFill::map(copy.descriptor(), bytes));
  auto state = std::make_unique<Staging::State>(std::move(copy), std::move(memory),
                                                std::move(opened), options.fetch);
  TRY(state->known);
  return state;
}

}  // namespace

Result<StagedFile> Staging::State::finish() {
  if (thread.joinable()) thread.join();
  if (!fetched) return tl::unexpected<Error>(fetched.error());  // each time
  if (!memory) return failure(ErrorCode::invalid_argument, "is staged already");
  auto staged = std::make_unique<StagedFile::State>();
  StageReport& report = staged->report;
  report.file_bytes = source().file.size();
  if (const Result<mmap::MappedMemory> held = mmap::mapped_memory(memory->bytes()))
    report.huge_bytes = held->huge;
  if (whole) TRY(compare_sum(*known, *whole, {}));
  is_compared = true;
  unmap();  // no seal before
  if (copy.named) {
    TRY(check_copy(checkpoint, copy.descriptor()));
    TRY(name_copy(*copy.named, copy.path, *staged));
  } else {
    TRY(seal(*staged));
  }
  report.time = std::chrono::steady_clock::now() - began;
  return StagedFile::Access::make(std::move(staged));
}

Result<void> Staging::State::seal(StagedFile::State& staged) {
  TRY(os::seal(copy.descriptor()));
  staged.report.sealed = true;
  TRY_ASSIGN(staged.descriptor, os::reopen_for_reading(copy.descriptor()));
  staged.path = os::path_of_descriptor(staged.descriptor.get());
  return check_copy(checkpoint, staged.descriptor.get());
}

FetchReport Staging::State::report() const {
  FetchReport report = fetching.report();
  report.version = source().remote->version();
  if (is_compared) known->add_to(report);
  const std::chrono::steady_clock::duration taken = time;
  report.time = taken == std::chrono::steady_clock::duration()
                    ? std::chrono::steady_clock::now() - began
                    : taken;
  return report;
}

Staging::Staging(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Staging::Staging(Staging&&) noexcept = default;
Staging& Staging::operator=(Staging&&) noexcept = default;
Staging::~Staging() = default;

const Checkpoint& Staging::checkpoint() const& noexcept { return state_->checkpoint; }
void Staging::cancel() const noexcept { state_->fetching.cancel(); }
void Staging::stop() noexcept { state_->stop(); }
FetchReport Staging::report() const { return state_->report(); }

Result<TensorView> Staging::wait(std::string_view tensor) const& {
  TRY_ASSIGN(const NamedTensor found, state_->checkpoint.get(tensor));
  const TensorView& view = found.view;
  if (found.is_copied) return view;
  TRY(about_file(state_->fetching.wait({found.file_offset, view.stored_bytes().size()}),
                 state_->source().info.path));
  return view;
}

Result<StagedFile> Staging::finish() {
  return about_file(state_->finish(), state_->source().info.path);
}

namespace {

Result<std::unique_ptr<Staging::State>> begin_staging(std::unique_ptr<RangeSource> source,
                                                      const RemoteStageOptions& options,
                                                      Staging::State* failed) {
  const std::string name = source->name();
  Result<std::unique_ptr<Staging::State>> state = prepare(std::move(source), options, failed);
  if (!state) return about_file(std::move(state.error()), name);
  try {
    (*state)->thread = std::thread([running = state->get()] { running->run(); });
  } catch (const std::system_error& error) {
    return about_file({ErrorCode::io, std::string("cannot start a thread: ") + error.what()}, name);
  }
  return state;
}

}  // namespace

Result<Staging> start_staging(std::unique_ptr<RangeSource> source,
                              const RemoteStageOptions& options) {
  TRY_ASSIGN(auto state, begin_staging(std::move(source), options, nullptr));
  return Staging(std::move(state));
}

Result<Staging> start_staging_again(std::unique_ptr<RangeSource> source,
                                    const RemoteStageOptions& options, Staging& failed) {
  TRY_ASSIGN(auto state, begin_staging(std::move(source), options, failed.state_.get()));
  return Staging(std::move(state));
}

Result<StagedFile> stage(std::unique_ptr<RangeSource> source, const RemoteStageOptions& options) {
  const std::string name = source->name();
  TRY_ASSIGN(std::unique_ptr<Staging::State> state,
             about_file(prepare(std::move(source), options), name));
  state->run();
  return about_file(state->finish(), name);
}

}  // namespace weightmap
