#include "runtime/checkpoint/open.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/bytes/counted.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/checkpoint/formats.hpp"
#include "runtime/checkpoint/inflated_storages.hpp"
#include "runtime/checkpoint/open_sources.hpp"
#include "runtime/checkpoint/refused_write.hpp"
#include "runtime/checkpoint/shards.hpp"
#include "runtime/dcp/parse_dcp.hpp"
#include "runtime/sets/select_files.hpp"

namespace weightmap {
namespace {

using State = Checkpoint::State;
using Clock = std::chrono::steady_clock;

std::unique_ptr<State> make_state(std::vector<GivenPath> paths, Sources sources,
                                  const OpenOptions& options) {
  auto state = std::make_unique<State>(std::move(paths), std::move(sources), options);
  state->info.protection = *options.protection;
  if (*options.protection == Protection::snapshot) state->info.protection_means = "reflink";
  return state;
}

Result<std::unique_ptr<State>> begin_open(std::vector<GivenPath> paths,
                                          const OpenOptions& options) {
  if (paths.size() > 1)
    for (const GivenPath& path : paths)
      if (sets::is_distributed_metadata(path.path.filename().native()))
        return about_shown({ErrorCode::invalid_argument,
                            "is metadata of torch.distributed.checkpoint, which is opened alone: "
                            "it names its files",
                            Error::no_offset,
                            {}},
                           path.shown);
  Sources sources;
  std::optional<sets::HubSnapshot> hub;
  for (const GivenPath& path : paths)
    TRY(paths.size() == 1 ? add_given(sources, path, options, hub)
                          : add_source(sources, path, options));
  std::unique_ptr<State> state = make_state(std::move(paths), std::move(sources), options);
  state->hub = std::move(hub);
  return state;
}

// What a format reads the metadata of the files from. `memory` holds what is read.
std::vector<format::Input> inputs_of(const State& state, std::pmr::memory_resource& memory) {
  std::vector<format::Input> inputs;
  inputs.reserve(state.sources.size());
  for (const SourceFile& source : state.sources)
    if (!source.is_copy())
      inputs.emplace_back(source.file, source.base(), state.sources.next_base(), memory);
  return inputs;
}

// A parse that knows which files there are.
struct Parsing {
  std::unique_ptr<ParsedFiles> made = std::make_unique<ParsedFiles>();
  std::vector<format::Input> inputs;
  const format::Format* format = nullptr;   // of one file, or the state's; nullptr: of each its own
  std::unique_ptr<sets::ShardIndex> index;  // that the first file is
  std::unique_ptr<dcp::Metadata> metadata;  // that the first files are
  std::size_t metadata_files = 0;

  // Those that were read are not all there are.
  std::span<const std::string> named_files() const noexcept {
    if (index) return index->files;
    return metadata ? std::span<const std::string>(metadata->files)
                    : std::span<const std::string>();
  }
};

Result<void> read_index(Parsing& parsing, const State& state) {
  format::Input& input = parsing.inputs.front();
  const std::uint64_t size = input.file->size();
  const std::uint64_t most = std::min(sets::longest_index, state.options.limits.pickle_bytes);
  if (size > most)
    return failure(ErrorCode::limit_exceeded, "the index of shards of " + std::to_string(size) +
                                                  " bytes is longer than the limit of " +
                                                  std::to_string(most));
  TRY_ASSIGN(const std::span<const std::byte> text, input.cache->bytes(0, size));
  parsing.index = std::make_unique<sets::ShardIndex>(
      std::string_view(reinterpret_cast<const char*>(text.data()), text.size()));
  return sets::read_shard_index(*parsing.index, state.options.limits, parsing.made->memory);
}

// How many of the files are metadata of torch.distributed.checkpoint, which are the first ones.
std::size_t count_metadata(const State& state) {
  const auto is_other = [](const SourceFile& source) {
    return !sets::is_distributed_metadata(source.info.path.filename().native());
  };
  return static_cast<std::size_t>(
      std::find_if(state.sources.begin(), state.sources.end(), is_other) - state.sources.begin());
}

Result<void> read_metadata(Parsing& parsing, const State& state) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < parsing.metadata_files; ++i)
    names.emplace_back(state.sources[i].shown_name);
  TRY_ASSIGN(dcp::Metadata read,
             dcp::read_metadata(std::span(parsing.inputs).first(parsing.metadata_files), names,
                                state.options, parsing.made->memory));
  parsing.metadata = std::make_unique<dcp::Metadata>(std::move(read));
  return {};
}

Result<Parsing> begin_parse(const State& state) {
  Parsing parsing;
  parsing.inputs = inputs_of(state, parsing.made->memory);
  parsing.format = state.format;
  const SourceFile& first = state.sources.front();
  parsing.metadata_files = count_metadata(state);
  if (parsing.metadata_files != 0) {
    TRY(read_metadata(parsing, state));
    return parsing;
  }
  if (parsing.format != nullptr || (state.is_set() && !state.has_index)) return parsing;
  Result<const format::Format*> format = format_of(parsing.inputs.front(), first.info.path);
  if (!format) return tl::unexpected<Error>(first.about(std::move(format.error())));
  parsing.format = *format;
  if (!is_index(**format)) return parsing;
  parsing.format = nullptr;
  if (Result<void> read = read_index(parsing, state); !read)
    return tl::unexpected<Error>(first.about(std::move(read.error())));
  return parsing;
}

// An index that is read again may have been rewritten since the open.
Result<void> check_names(const sets::ShardIndex& index, const Sources& sources) {
  const std::filesystem::path folder = sources.front().info.path.parent_path();
  bool are_same = sources.size() == index.files.size() + 1;
  for (std::size_t i = 0; are_same && i < index.files.size(); ++i)
    are_same = sources[i + 1].info.path == folder / index.files[i];
  if (are_same) return {};
  return failure(ErrorCode::corrupt, "the index names other files than those that were opened");
}

Result<format::Parsed> finish_set(Parsing& parsing, const State& state, const OpenOptions& options,
                                  OpenStats& stats) {
  const std::size_t first = parsing.index ? 1 : 0;
  TRY_ASSIGN(format::Parsed parsed, parse_shards(state.sources, first, parsing.index.get(), options,
                                                 stats, parsing.made->memory));
  if (parsing.index) {
    parsed.tree = std::move(parsing.index->metadata);
    parsing.inputs.front().release(stats);
  }
  return parsed;
}

Result<format::Parsed> finish_distributed(Parsing& parsing, const State& state, OpenStats& stats) {
  std::vector<dcp::DataFile> files;
  for (std::size_t i = parsing.metadata_files; i < state.sources.size(); ++i) {
    const SourceFile& source = state.sources[i];
    files.push_back(
        {&source.file, source.shown_name, source.base(), static_cast<std::uint32_t>(i)});
  }
  for (format::Input& input : parsing.inputs) input.release(stats);
  return dcp::parse(*parsing.metadata, files, state.options, stats, parsing.made->memory);
}

Result<std::unique_ptr<ParsedFiles>> finish_parse(Parsing parsing, const State& state,
                                                  OpenStats& stats) {
  ParsedFiles& made = *parsing.made;
  if (parsing.metadata) {
    Result<format::Parsed> parsed = finish_distributed(parsing, state, stats);
    if (!parsed)
      return tl::unexpected<Error>(state.sources.front().about(std::move(parsed.error())));
    made.content = std::move(*parsed);
    return std::move(parsing.made);
  }
  if (parsing.format != nullptr) {
    TRY_ASSIGN(made.content,
               state.format != nullptr
                   ? state.format->parse(parsing.inputs, state.options, stats, made.memory)
                   : parse_file(*parsing.format, parsing.inputs.front(), state.options, stats,
                                made.memory));
    return std::move(parsing.made);
  }
  Result<format::Parsed> parsed = finish_set(parsing, state, state.options, stats);
  if (!parsed) return tl::unexpected<Error>(state.sources.front().about(std::move(parsed.error())));
  made.content = std::move(*parsed);
  return std::move(parsing.made);
}

// The files of which the one that was given is a part.
Result<std::unique_ptr<ParsedFiles>> parse_split(const format::Split& split, State& state) {
  const SourceFile& part = state.sources.front();
  Result<Sources> all = open_split(part, split, state.options);
  if (!all) return tl::unexpected<Error>(part.about(std::move(all.error())));
  state.sources = std::move(*all);
  const OpenStats before = std::exchange(state.stats, {});
  state.stats.reads = before.reads;
  state.stats.bytes_read = before.bytes_read;
  for (const SourceFile& source : state.sources) source.file.advise_metadata();
  TRY_ASSIGN(Parsing parsing, begin_parse(state));
  return finish_parse(std::move(parsing), state, state.stats);
}

// What the file says of itself, and how much there is of it.
void describe(State& state) {
  const format::Parsed& parsed = state.content();
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

namespace {

// `parsed`: what the files say now.
Result<void> check_storages(const catalog::Catalog& used, const catalog::Catalog& parsed,
                            const Sources& sources) {
  if (used.storages().size() != parsed.storages().size())
    return failure(ErrorCode::corrupt,
                   "has " + bytes::counted(parsed.storages().size(), "storage") +
                       ", the catalog has " + std::to_string(used.storages().size()));
  for (std::size_t i = 0; i < used.storages().size(); ++i) {
    const catalog::StorageEntry& one = used.storages()[i];
    const catalog::StorageEntry& other = parsed.storages()[i];
    if (one.position == other.position && one.nbytes == other.nbytes && one.source == other.source)
      continue;
    return tl::unexpected<Error>(sources.about_position(
        {ErrorCode::corrupt,
         "storage " + bytes::quote(parsed.text(other.key)) + " of " +
             bytes::counted(other.nbytes, "byte") + " does not lie where the catalog has it",
         other.position,
         {}}));
  }
  return {};
}

}  // namespace

Result<void> verify_headers(const State& state) {
  const std::string_view format = state.info.format;
  if ((format == "safetensors" || format == "gguf") && !state.is_set())
    return {};  // the open read all there is
  TRY_ASSIGN(Parsing parsing, begin_parse(state));
  if (parsing.metadata) return {};  // the open proved each item
  if (parsing.format == nullptr) {
    if (parsing.index) TRY(check_names(*parsing.index, state.sources));
    OpenOptions options = state.options;
    options.verify = Verify::headers;
    OpenStats not_of_the_open;
    TRY_ASSIGN(const format::Parsed parsed, finish_set(parsing, state, options, not_of_the_open));
    return check_storages(state.catalog(), parsed.catalog, state.sources);
  }
  if (parsing.format->verify_headers == nullptr) return {};
  return parsing.format->verify_headers(parsing.inputs, state.catalog(), state.options.limits);
}

Result<std::unique_ptr<State>> begin_open(std::span<const std::filesystem::path> paths,
                                          const OpenOptions& options) {
  std::vector<GivenPath> all;
  for (const std::filesystem::path& path : paths) all.push_back(given(path));
  return begin_open(std::move(all), options);
}

namespace {

// The one file, or all of which it is a part.
std::vector<std::filesystem::path> files_of_split(const State& state) {
  const std::filesystem::path file = state.sources.front().info.path;
  Result<Parsing> parsing = begin_parse(state);
  if (!parsing || parsing->format == nullptr) return {file};
  OpenStats not_of_an_open;
  const auto parsed = finish_parse(std::move(*parsing), state, not_of_an_open);
  if (!parsed || !(*parsed)->content.split) return {file};
  const Result<std::vector<std::string>> names = names_of_split(file, *(*parsed)->content.split);
  if (!names) return {file};
  std::vector<std::filesystem::path> files;
  for (const std::string& name : *names) files.push_back(file.parent_path() / name);
  return files;
}

}  // namespace

Result<std::vector<std::filesystem::path>> files_of(const std::filesystem::path& path) {
  TRY_ASSIGN(const OpenOptions options, with_defaults(OpenOptions::to_look()));
  TRY_ASSIGN(const std::unique_ptr<State> state, begin_open({&path, 1}, options));
  std::vector<std::filesystem::path> files;
  for (const SourceFile& source : state->sources) files.push_back(source.info.path);
  if (files.size() == 1 && files.front().native().ends_with(".gguf")) return files_of_split(*state);
  const bool may_name_others =
      files.front().native().ends_with(".json") || files.front().native().ends_with(".metadata");
  if (!may_name_others) return files;
  const Result<Parsing> parsing = begin_parse(*state);
  if (!parsing) return files;
  const std::filesystem::path folder = files.front().parent_path();
  for (const std::string& file : parsing->named_files()) files.push_back(folder / file);
  return files;
}

Result<std::unique_ptr<State>> begin_again(const State& old) {
  if (old.given.empty())
    return about_shown(Error{ErrorCode::invalid_argument,
                             "was opened by descriptor and has no path to open again"},
                       old.shown_name());
  TRY_ASSIGN(std::unique_ptr<State> state, begin_open(old.given, old.options));
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
  return make_state({}, std::move(sources), options);
}

namespace {

// `being_filled`: others write to the file at this moment (fill.hpp).
Result<void> map(State& state, bool being_filled) {
  const Clock::time_point began = Clock::now();
  const OpenOptions& options = state.options;
  mmap::MapOptions how{};
  how.sharing = *options.sharing;
  how.writable = *options.writable;
  how.populate = *options.populate;
  how.no_reserve = *options.no_reserve;
  how.locked = *options.locked;
  how.progress = options.progress;
  how.huge_pages = *options.huge_pages;
  how.guard = *options.protection == Protection::guard;
  how.loss_event = options.loss_event;
  how.on_write = {tell_refused_write, &state};
  how.being_filled = being_filled;
  Result<mmap::Mapping> mapped = mmap::Mapping::map(state.sources.placed(), how);
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

Result<void> parse_and_map(State& state) {
  const Clock::time_point began = Clock::now();
  for (const SourceFile& source : state.sources) source.file.advise_metadata();
  TRY_ASSIGN(Parsing parsing, begin_parse(state));
  TRY(add_named_files(state.sources, parsing.named_files(), parsing.index ? "index" : "metadata",
                      state.options));
  state.has_index = parsing.index != nullptr || parsing.metadata != nullptr;
  TRY_ASSIGN(state.parsed, finish_parse(std::move(parsing), state, state.stats));
  if (const std::optional<format::Split> split = state.content().split) {
    TRY_ASSIGN(state.parsed, parse_split(*split, state));
  }
  state.parsed->memory.trim();
  TRY(check_zero_copy(state));
  TRY(inflate_storages(state));
  for (const SourceFile& source : state.sources) source.file.advise_mapping();
  const std::optional<ReservedStorages>& reserved = state.content().facts.reserved;
  TRY(map(state, reserved && !reserved->is_sealed));
  describe(state);
  state.stats.total = Clock::now() - began;
  log_open(state);
  return {};
}

}  // namespace

Result<Checkpoint> finish_open(std::unique_ptr<State> state) {
  State& opened = *state;
  if (Result<void> mapped = parse_and_map(opened); !mapped)
    return about_shown(std::move(mapped.error()), opened.shown_name());
  Checkpoint checkpoint = Checkpoint::Access::make(std::move(state));
  if (*opened.options.verify == Verify::crc) {
    CrcReport sums = checkpoint.verify_crc(opened.options.progress);
    if (sums.cancelled)
      return about_shown({ErrorCode::cancelled, "the check of its checksums was cancelled"},
                         opened.shown_name());
    if (!sums.faults.empty()) return tl::unexpected<Error>(std::move(sums.faults.front()));
  }
  opened.faults_at_open = mmap::process_faults();
  return checkpoint;
}

Result<Checkpoint> open_files(std::span<const std::filesystem::path> paths,
                              const format::Format& format, const OpenOptions& options) {
  TRY_ASSIGN(const OpenOptions complete, with_defaults(options));
  TRY_ASSIGN(std::unique_ptr<State> state, begin_open(paths, complete));
  state->format = &format;
  return finish_open(std::move(state));
}

}  // namespace weightmap
