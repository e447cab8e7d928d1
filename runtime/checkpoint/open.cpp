#include "runtime/checkpoint/open.hpp"

#include <chrono>
#include <string>
#include <utility>

#include "mmap/memory/snapshot.hpp"
#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/bytes/counted.hpp"
#include "runtime/checkpoint/formats.hpp"
#include "runtime/checkpoint/inflated_storages.hpp"

namespace weightmap {
namespace {

using State = Checkpoint::State;
using Clock = std::chrono::steady_clock;

// The file as `protection` has it.
Result<os::File> protect(os::File file, const OpenOptions& options) {
  if (*options.protection != Protection::snapshot) return file;
  if (*options.writable && *options.sharing == Sharing::shared)
    return failure(ErrorCode::invalid_argument,
                   "writes to a snapshot would not reach the file: it is opened writable with "
                   "sharing=private, or with protection=map or guard");
  Result<os::File> snapshot = os::take_snapshot(file);
  if (!snapshot) snapshot.error().message.insert(0, "protection=snapshot: ");
  return snapshot;
}

Result<SourceFile> make_source(os::File file, std::string name, const OpenOptions& options) {
  const Generation opened = file.generation();
  TRY_ASSIGN(os::File used, protect(std::move(file), options));
  return SourceFile{std::move(used), {{}, opened, opened.size, 0}, std::move(name)};
}

Result<SourceFile> open_source(const std::filesystem::path& path, const std::string& name,
                               const OpenOptions& options) {
  Result<os::File> file =
      os::File::open(path, *options.writable && *options.sharing == Sharing::shared);
  if (!file) return about_shown(std::move(file.error()), name);
  Result<SourceFile> source = make_source(std::move(*file), name, options);
  if (!source) return about_shown(std::move(source.error()), name);
  std::error_code unknown;  // the working directory is gone: then the path as it was given
  source->info.path = std::filesystem::absolute(path, unknown);
  if (unknown) source->info.path = path;
  return source;
}

// `name`: what errors call the file.
Result<void> add_source(Sources& sources, const std::filesystem::path& path,
                        const std::string& name, const OpenOptions& options) {
  TRY_ASSIGN(SourceFile source, open_source(path, name, options));
  if (Result<void> placed = sources.add(std::move(source)); !placed)
    return about_shown(std::move(placed.error()), name);
  return {};
}

std::unique_ptr<State> make_state(Sources sources, const OpenOptions& options) {
  auto state = std::make_unique<State>(std::move(sources), options);
  state->info.protection = *options.protection;
  if (*options.protection == Protection::snapshot) state->info.protection_means = "reflink";
  return state;
}

Result<std::unique_ptr<OwnCatalog>> parse(const State& state, OpenStats& stats) {
  auto own = std::make_unique<OwnCatalog>();
  std::vector<format::Input> inputs = inputs_of(state, own->memory);
  TRY_ASSIGN(const format::Format* const format, format_of(state, inputs.front()));
  TRY_ASSIGN(own->parsed, format->parse(inputs, state.options, stats, own->memory));
  return own;
}

// For a value tree that is asked for, or a catalog that was found damaged, long after the open.
Result<std::unique_ptr<OwnCatalog>> parse_later(const State& state) {
  OpenStats not_of_the_open;
  Result<std::unique_ptr<OwnCatalog>> own = parse(state, not_of_the_open);
  if (!own) return about_shown(std::move(own.error()), state.shown_name());
  for (const SourceFile& source : state.sources) {  // what is mapped is what was parsed
    Result<void> same = source.file.check_unchanged();
    if (!same) return about_shown(std::move(same.error()), source.shown_name);
  }
  (*own)->memory.trim();
  return own;
}

// What the file says of itself, and how much there is of it.
void describe(State& state, const format::Parsed& parsed) {
  CheckpointInfo facts = parsed.facts;
  const CheckpointInfo& mapped = state.info;
  facts.tensors = parsed.catalog.size();
  facts.tensor_bytes = parsed.catalog.tensor_bytes();
  facts.storages = parsed.catalog.storages().size();
  facts.file_bytes = state.sources.bytes();
  facts.sharing = mapped.sharing;
  facts.sharing_fell_back = mapped.sharing_fell_back;
  facts.writable = mapped.writable;
  facts.protection = mapped.protection;
  facts.protection_means = mapped.protection_means;
  state.info = std::move(facts);
}

void log_open(const State& state) {
  if (!state.options.log) return;
  const OpenStats& stats = state.stats;
  state.options.log(
      state.shown_name() + ": opened: " + bytes::counted(state.info.tensors, "tensor") + " in " +
      bytes::counted(state.info.storages, "storage") + ", offsets " +
      std::string(to_string(stats.strategy)) + ", " + bytes::counted(stats.reads, "read") + " of " +
      bytes::counted(stats.bytes_read, "byte") + ", " + std::to_string(stats.total.count() / 1000) +
      " us");
}

}  // namespace

State::State(Sources opened, OpenOptions complete)
    : sources(std::move(opened)),
      catalogs([this] { return parse_later(*this); }),
      demand_log([this] { return catalogs.whole().value_or(nullptr); }),
      options(std::move(complete)) {}

Result<const format::Format*> format_of(const State& state, format::Input& first) {
  if (state.format != nullptr) return state.format;
  return format_of(first);
}

std::vector<format::Input> inputs_of(const State& state, std::pmr::memory_resource& memory) {
  std::vector<format::Input> inputs;
  inputs.reserve(state.sources.size());
  for (const SourceFile& source : state.sources)
    if (!source.is_copy())
      inputs.emplace_back(source.file, source.base(), state.sources.next_base(), memory);
  return inputs;
}

Result<std::unique_ptr<State>> begin_open(std::span<const std::filesystem::path> paths,
                                          const OpenOptions& options) {
  Sources sources;
  for (const std::filesystem::path& path : paths)
    TRY(add_source(sources, path, shown_name(path), options));
  return make_state(std::move(sources), options);
}

Result<std::unique_ptr<State>> begin_again(const State& old) {
  Sources sources;
  for (const SourceFile& source : old.sources) {
    if (source.is_copy()) continue;
    if (source.info.path.empty())
      return about_shown(Error{ErrorCode::invalid_argument,
                               "was opened by descriptor and has no path to open again"},
                         source.shown_name);
    TRY(add_source(sources, source.info.path, source.shown_name, old.options));
  }
  std::unique_ptr<State> state = make_state(std::move(sources), old.options);
  state->format = old.format;
  return state;
}

Result<std::unique_ptr<State>> begin_open(int descriptor, const OpenOptions& options) {
  const std::string name = "descriptor " + std::to_string(descriptor);
  Result<os::File> file = os::File::from_descriptor(descriptor);
  if (!file) return about_shown(std::move(file.error()), name);
  Result<SourceFile> source = make_source(std::move(*file), name, options);
  if (!source) return about_shown(std::move(source.error()), name);
  Sources sources;
  TRY(sources.add(std::move(*source)));
  return make_state(std::move(sources), options);
}

Result<void> parse_and_map(State& state) {
  const Clock::time_point began = Clock::now();
  for (const SourceFile& source : state.sources) source.file.advise_metadata();
  TRY_ASSIGN(std::unique_ptr<OwnCatalog> own, parse(state, state.stats));
  TRY(check_zero_copy(state.options, own->parsed));
  TRY(inflate_storages(state, own->parsed.compressed));
  for (const SourceFile& source : state.sources) source.file.advise_mapping();
  const std::optional<ReservedStorages>& reserved = own->parsed.facts.reserved;
  TRY(map(state, reserved && !reserved->is_sealed));
  own->memory.trim();
  describe(state, own->parsed);
  state.catalogs.set_own(std::move(own));
  state.stats.total = Clock::now() - began;
  log_open(state);
  return {};
}

Result<void> map(State& state, bool being_filled) {
  const Clock::time_point began = Clock::now();
  const OpenOptions& options = state.options;
  os::MapOptions how{};
  how.sharing = *options.sharing;
  how.writable = *options.writable;
  how.populate = *options.populate;
  how.no_reserve = *options.no_reserve;
  how.locked = *options.locked;
  how.progress = options.progress;
  how.huge_pages = *options.huge_pages;
  how.guard = *options.protection == Protection::guard;
  how.loss_event = options.loss_event;
  how.being_filled = being_filled;
  Result<os::Mapping> mapped = os::Mapping::map(state.sources.placed(), how);
  if (!mapped && state.sources.size() > 1)
    return tl::unexpected<Error>(state.sources.about_position(std::move(mapped.error())));
  TRY_ASSIGN(state.mapping, std::move(mapped));
  state.info.sharing = state.mapping.sharing();
  state.info.sharing_fell_back = state.mapping.fell_back();
  state.info.writable = *options.writable;
  if (state.info.sharing_fell_back && options.log)
    options.log(state.shown_name() +
                ": the file system refused MAP_SHARED; mapped with MAP_PRIVATE instead");
  state.stats.mapping = Clock::now() - began;
  return {};
}

Result<Checkpoint> finish_open(std::unique_ptr<State> state) {
  State& opened = *state;
  if (Result<void> shown = check_zero_copy(opened); !shown)
    return about_shown(std::move(shown.error()), opened.shown_name());
  Checkpoint checkpoint = Checkpoint::Access::make(std::move(state));
  if (*opened.options.verify == Verify::crc) {
    CrcReport sums = checkpoint.verify_crc(opened.options.progress);
    if (sums.cancelled)
      return about_shown({ErrorCode::cancelled, "the check of its checksums was cancelled"},
                         opened.shown_name());
    if (!sums.faults.empty()) return tl::unexpected<Error>(std::move(sums.faults.front()));
  }
  opened.faults_at_open = os::process_faults();
  return checkpoint;
}

Result<Checkpoint> open_alone(std::unique_ptr<State> state) {
  if (Result<void> opened = parse_and_map(*state); !opened)
    return about_shown(std::move(opened.error()), state->shown_name());
  if (*state->options.shared_catalog)
    state->info.catalog_reason = state->sources.front().info.path.empty()
                                     ? "a file without a path takes no shared catalog"
                                     : "a checkpoint of several files takes no shared catalog";
  return finish_open(std::move(state));
}

Result<Checkpoint> open_files(std::span<const std::filesystem::path> paths,
                              const format::Format& format, const OpenOptions& options) {
  TRY_ASSIGN(const OpenOptions complete, with_defaults(options));
  TRY_ASSIGN(std::unique_ptr<State> state, begin_open(paths, complete));
  state->format = &format;
  return open_alone(std::move(state));
}

}  // namespace weightmap
