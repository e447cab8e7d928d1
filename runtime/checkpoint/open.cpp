#include "runtime/checkpoint/open.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/advice.hpp"
#include "runtime/checkpoint/arriving_file.hpp"
#include "runtime/checkpoint/inflated_storages.hpp"
#include "runtime/checkpoint/parsing.hpp"
#include "runtime/checkpoint/refused_write.hpp"
#include "runtime/formats/sets/file_names.hpp"
#include "runtime/system/facilities.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/remote.hpp"

namespace weightmap {
namespace {

using State = Checkpoint::State;
using Clock = std::chrono::steady_clock;

// Fails for what OpenOptions::dtypes says of other tensors than opaque ones, which have it by now.
Result<void> check_dtypes(const catalog::ListedTensors& listed, const OpenOptions& options) {
  for (const auto& [name, dtype] : options.dtypes) {
    const std::uint32_t found = listed.find(name);
    const std::string named = "the option dtypes names " + bytes::quote(name);
    if (found == catalog::Catalog::none)
      return failure(ErrorCode::invalid_argument, named + ", which is not listed");
    if (listed.dtype(found) != dtype)
      return failure(ErrorCode::invalid_argument,
                     named + ", which is " + std::string(to_string(listed.dtype(found))) +
                         ": it tells the types of opaque arrays in .npz and .npy files only");
  }
  return {};
}

// The stages of an open, each of which leaves something in the state for the next one.
class Opening {
 public:
  Opening(GivenFiles given, const OpenOptions& options)
      : state_(std::make_unique<State>(std::move(given), options)) {}

  Result<Checkpoint> run() && {
    const Clock::time_point began = Clock::now();
    TRY(parse());
    TRY(check_dtypes(state_->listed(), state_->options));
    TRY(check_zero_copy(*state_));
    TRY(inflate_storages(*state_));
    TRY(map());
    describe();
    state_->stats.total = Clock::now() - began;
    log();
    return std::move(*this).finish();
  }

 private:
  Result<void> parse();
  Result<void> add_files(const NamedFiles& named);
  mmap::MapOptions map_options() const;
  Result<void> map();
  void describe();
  void log() const;
  Result<Checkpoint> finish() &&;

  std::unique_ptr<State> state_;
};

Result<void> Opening::parse() {
  for (const SourceFile& source : state_->sources) source.file.advise_metadata();
  Parsing parsing(state_->sources, state_->options, state_->stats);
  TRY(parsing.identify(state_->leading_files));
  TRY(parsing.read_first());
  if (parsing.named() != nullptr) TRY(add_files(*parsing.named()));
  TRY_ASSIGN(state_->parsed, std::move(parsing).finish());
  state_->parsed->memory.trim();
  format::Parsed& content = state_->parsed->content;
  state_->tensors = TensorTable(std::exchange(content.catalog, {}),
                                std::exchange(content.late_places, std::nullopt));
  return {};
}

Result<void> Opening::add_files(const NamedFiles& named) {
  Sources& sources = state_->sources;
  if (!named.includes_first)
    return add_beside(sources, sources.front(), named.files, named.why, state_->options);
  Sources all;
  TRY(add_beside(all, sources.front(), named.files, named.why, state_->options));
  sources = std::move(all);
  state_->leading_files = 0;
  for (const SourceFile& source : sources) source.file.advise_metadata();
  return {};
}

mmap::MapOptions Opening::map_options() const {
  const OpenOptions& options = state_->options;
  const std::optional<ReservedStorages>& reserved = state_->content().facts.reserved;
  mmap::MapOptions how{};
  how.sharing = *options.sharing;
  how.writable = *options.writable;
  how.populate = *options.populate;
  how.no_reserve = *options.no_reserve;
  how.locked = *options.locked;
  how.progress = options.progress;
  how.huge_pages = options.huge_pages.value_or(!os::host_takes_back_free_memory());
  how.guard = *options.protection == Protection::guard;
  how.loss_event = options.loss_event;
  how.on_write = {tell_refused_write, state_.get()};
  how.being_filled = reserved && !reserved->is_sealed;  // others write to the file (CheckpointFill)
  return how;
}

Result<void> Opening::map() {
  const Clock::time_point began = Clock::now();
  State& state = *state_;
  if (state.is_in_memory()) {
    state.mapping = mmap::Mapping::over(state.sources.front().file.memory());
    return {};
  }
  for (const SourceFile& source : state.sources) source.file.advise_mapping();
  Result<mmap::Mapping> mapped = state.view_memory == ViewMemory::mapped
                                     ? mmap::Mapping::map(state.sources.placed(), map_options())
                                     : mmap::Mapping::reserve(state.sources.placed());
  if (!mapped && state.sources.size() > 1)
    return tl::unexpected<Error>(state.sources.about_position(std::move(mapped.error())));
  TRY_ASSIGN(state.mapping, std::move(mapped));
  if (state.mapping.fell_back() && state.options.log)
    state.options.log(state.shown_name() +
                      ": the file system refused MAP_SHARED; mapped with MAP_PRIVATE instead");
  state.stats.mapping = Clock::now() - began;
  return {};
}

// Records the facts that the files state, their sizes, and the kind of the mapping.
void Opening::describe() {
  State& state = *state_;
  const format::Parsed& parsed = state.content();
  CheckpointInfo& info = state.info;
  info = parsed.facts;
  info.not_opened = state.not_opened;
  info.tensors = state.listed().size();
  info.tensor_bytes = state.listed().tensor_bytes();
  info.storages = state.listed().storage_count();
  info.file_bytes = state.sources.bytes();
  info.sharing = state.mapping.sharing();
  info.sharing_fell_back = state.mapping.fell_back();
  info.writable = *state.options.writable;
  info.protection = *state.options.protection;
}

void Opening::log() const {
  const State& state = *state_;
  if (!state.options.log) return;
  const OpenStats& stats = state.stats;
  state.options.log(
      state.shown_name() + ": opened: " + bytes::counted(state.info.tensors, "tensor") + " in " +
      bytes::counted(state.info.storages, "storage") + ", offsets " +
      std::string(to_string(stats.strategy)) + ", " + bytes::counted(stats.reads, "read") + " of " +
      bytes::counted(stats.bytes_read, "byte") + ", " + std::to_string(stats.total.count() / 1000) +
      " us");
}

// Advises how pages are read, and compares checksums if the options ask for that.
Result<Checkpoint> Opening::finish() && {
  State& opened = *state_;
  Checkpoint checkpoint = Checkpoint::Access::make(std::move(state_));
  TRY(advise_as_opened(checkpoint));
  if (*opened.options.verify == Verify::crc) {
    CrcReport sums = verify_crc(checkpoint, opened.options.progress);
    if (sums.cancelled)
      return failure(ErrorCode::cancelled, "the check of its checksums was cancelled");
    if (!sums.faults.empty()) return tl::unexpected<Error>(std::move(sums.faults.front()));
  }
  if (opened.view_memory != ViewMemory::mapped)
    for (const SourceFile& source : opened.sources)
      if (source.remote) source.remote->stop_keeping();
  opened.faults_at_open = mmap::process_faults();
  return checkpoint;
}

Result<Checkpoint> open_given_files(GivenFiles given, const OpenOptions& options) {
  const std::string name = given.shown_name();
  Result<Checkpoint> opened = Opening(std::move(given), options).run();
  if (opened) return opened;
  opened.error().message += sets::hint_about_cut(name);
  return about_shown(std::move(opened.error()), name);
}

Result<Checkpoint> open_paths(std::vector<GivenPath> paths, const OpenOptions& options) {
  TRY_ASSIGN(GivenFiles given, open_given(std::move(paths), options));
  return open_given_files(std::move(given), options);
}

Result<void> check_reads_metadata(const OpenOptions& options) {
  const auto refuse = [](const std::string& option) {
    return failure(ErrorCode::unsupported,
                   option +
                       " needs all bytes of a remote checkpoint, and only its metadata is "
                       "read; stage or fetch it");
  };
  if (options.writable.value_or(false)) return refuse("writable");
  if (options.populate.value_or(false)) return refuse("populate");
  if (options.locked.value_or(false)) return refuse("locked");
  if (options.verify == Verify::crc) return refuse("verify=crc");
  return {};
}

// Without those of the environment that concern the bytes.
Result<OpenOptions> complete_for_metadata(OpenOptions options) {
  const OpenOptions look = OpenOptions::to_look();
  if (!options.verify) options.verify = look.verify;
  options.writable = look.writable;
  options.populate = look.populate;
  options.locked = look.locked;
  options.protection = look.protection;
  return with_defaults(std::move(options));
}

Result<Checkpoint> open_source(std::shared_ptr<RangeSource> source, const OpenOptions& options) {
  if (!options.variant.empty())
    return failure(ErrorCode::unsupported,
                   "a variant is chosen among the files of a folder; of a store, name the file "
                   "itself, such as hf://org/name/model.fp16.safetensors");
  TRY(check_reads_metadata(options));
  TRY_ASSIGN(const OpenOptions all, complete_for_metadata(options));
  TRY_ASSIGN(std::shared_ptr<ArrivingFile> file, ArrivingFile::in_memory(std::move(source)));
  return open_arriving(std::move(file), all, ViewMemory::none);
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& path, const OpenOptions& options) {
  return open_files({&path, 1}, options);
}

Result<Checkpoint> Checkpoint::open_files(std::span<const std::filesystem::path> paths,
                                          const OpenOptions& options) {
  if (paths.empty())
    return failure(ErrorCode::invalid_argument, "the list of files to open is empty");
  TRY_ASSIGN(const OpenOptions complete, with_defaults(options));
  std::vector<GivenPath> all;
  for (const std::filesystem::path& path : paths) all.push_back(given(path));
  return open_paths(std::move(all), complete);
}

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open_shared(const std::filesystem::path& path,
                                                                  const OpenOptions& options) {
  TRY_ASSIGN(Checkpoint checkpoint, open(path, options));
  return std::make_shared<const Checkpoint>(std::move(checkpoint));
}

Result<Checkpoint> Checkpoint::open_descriptor(int descriptor, const OpenOptions& options) {
  TRY_ASSIGN(const OpenOptions complete, with_defaults(options));
  TRY_ASSIGN(GivenFiles files, open_given(descriptor, complete));
  return open_given_files(std::move(files), complete);
}

Result<Checkpoint> Checkpoint::open_memory(std::span<const std::byte> bytes,
                                           std::shared_ptr<const void> owner,
                                           const OpenOptions& options) {
  TRY_ASSIGN(OpenOptions complete, with_environment(options));
  if (!complete.copy_on_write) complete.copy_on_write = CopyOnWrite::off;
  TRY_ASSIGN(complete, with_defaults(std::move(complete)));
  TRY_ASSIGN(GivenFiles files, open_given(bytes, std::move(owner), complete));
  return open_given_files(std::move(files), complete);
}

Result<Checkpoint> Checkpoint::reopen() const {
  const State& old = *state_;
  if (old.given.empty())
    return about_shown(
        Error{ErrorCode::invalid_argument,
              std::string("was opened ") + (old.is_in_memory() ? "in memory" : "by descriptor") +
                  " and has no path to open again"},
        old.shown_name());
  if (old.sources.front().remote)
    return about_shown(
        Error{ErrorCode::unsupported, "is remote: it is opened again by a new source"},
        old.shown_name());
  return open_paths(old.given, old.options);
}

Checkpoint::Checkpoint(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

std::size_t Checkpoint::source_count() const noexcept { return state_->sources.size(); }
const SourceInfo& Checkpoint::source(std::size_t index) const& noexcept {
  return state_->sources[index].info;
}
const CheckpointInfo& Checkpoint::info() const& noexcept { return state_->info; }
const OpenStats& Checkpoint::stats() const& noexcept { return state_->stats; }
std::span<const std::byte> Checkpoint::mapping() const& noexcept { return state_->mapping.bytes(); }

std::vector<std::filesystem::path> Backing::opened_paths() const {
  std::vector<std::filesystem::path> paths;
  for (const GivenPath& given : state_->given)
    paths.push_back(state_->hub ? std::filesystem::path(given.as_given) : given.path);
  return paths;
}

Result<Checkpoint> open_arriving(std::shared_ptr<ArrivingFile> file, const OpenOptions& options,
                                 ViewMemory view_memory) {
  TRY_ASSIGN(GivenFiles given, open_given(std::move(file), view_memory));
  return open_given_files(std::move(given), options);
}

Result<Checkpoint> open_metadata(std::unique_ptr<RangeSource> source, const OpenOptions& options) {
  const std::string name = shown_name(source->name());
  return about_shown(open_source(std::move(source), options), name);
}

}  // namespace weightmap
