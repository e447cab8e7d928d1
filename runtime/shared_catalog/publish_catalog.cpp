#include "runtime/shared_catalog/publish_catalog.hpp"

#include <array>
#include <charconv>
#include <chrono>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "mmap/directory.hpp"
#include "mmap/memory/sealed_memory.hpp"
#include "mmap/process/shared_block.hpp"
#include "runtime/base/try.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/shared_catalog/published.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weightmap {
namespace {

// Systems note changes by a clock that ticks 100 to 1000 times a second; file systems that keep
// whole seconds only (ext3, small inodes of ext4, some servers) or even ones (vfat) by that.
constexpr std::chrono::milliseconds clock_tick(20);
constexpr std::chrono::seconds coarse_tick(2);

bool is_coarse(std::int64_t time_ns) noexcept { return time_ns % 1'000'000'000 == 0; }

// The files behind the first one, by names that lead to them from its folder.
Result<std::vector<catalog::ListedFile>> list_others(const Sources& sources) {
  std::vector<catalog::ListedFile> others;
  const std::string folder = sources.front().info.path.parent_path() / "";
  for (std::size_t i = 1; i < sources.size(); ++i) {
    const SourceInfo& info = sources[i].info;
    const std::string& path = info.path.native();
    if (!path.starts_with(folder))
      return failure(ErrorCode::unsupported, sources[i].shown_name +
                                                 " does not lie beside the first file, so that no "
                                                 "shared catalog leads to it");
    others.push_back({path.substr(folder.size()), info.generation, info.mapping_offset});
  }
  if (Result<void> fits = catalog::check_file_list(others); !fits)
    return failure(ErrorCode::unsupported, std::move(fits.error().message));
  return others;
}

Result<catalog::Description> describe(const Checkpoint::State& state) {
  const CheckpointInfo& info = state.info;
  const OpenStats& stats = state.stats;
  catalog::Description made;
  made.generation = state.sources.front().info.generation;
  TRY_ASSIGN(made.others, list_others(state.sources));
  made.has_index = state.has_index;
  made.format = info.format;
  made.limits = state.options.limits;
  made.version = info.version;
  made.storage_alignment = info.storage_alignment;
  made.pickle_bytes = info.pickle_bytes;
  made.tensors_not_indexed = info.tensors_not_indexed;
  made.storages_calculated = stats.storages_calculated;
  made.storages_by_directory = stats.storages_by_directory;
  made.storages_by_header = stats.storages_by_header;
  made.strategy = stats.strategy;
  made.big_endian = info.byteorder == "big";
  made.byte_order_assumed = info.byteorder_assumed;
  made.names_torch_safe_only = info.names_torch_safe_only;
  made.format_version = info.format_version;
  made.source = state.sources.front().info.path.native();
  return made;
}

// A change of the same moment would leave the file's times as they are. Sealed memory never
// changes.
Result<void> check_settled(const Checkpoint::State& state, const SourceFile& source) {
  if (os::is_sealed(source.file.descriptor())) return {};
  const Generation& opened = source.info.generation;
  const std::chrono::nanoseconds changed(opened.ctime_ns);
  const bool coarse = is_coarse(opened.ctime_ns) || is_coarse(opened.mtime_ns);
  const std::chrono::milliseconds tick = coarse ? coarse_tick : clock_tick;
  if (changed + tick <= state.began.time_since_epoch()) return {};
  return failure(ErrorCode::io,
                 (state.sources.size() > 1 ? source.shown_name : "the file") +
                     " was changed less than " + std::to_string(tick.count()) +
                     " ms before it was opened, so that its times might not show another change");
}

Result<void> check_settled(const Checkpoint::State& state) {
  for (const SourceFile& source : state.sources) TRY(check_settled(state, source));
  return {};
}

bool is_told_whole(const format::Parsed& parsed, bool is_set) {
  const CheckpointInfo& facts = parsed.facts;
  return is_set ? catalog::has_code_for_format(facts.format) && facts.byteorder != "mixed"
                : facts.format == "torch_zip";
}

// A catalog says all that there is to say of files of torch.save with dense tensors only, and of
// sets of them or of safetensors files.
Result<void> check_is_whole(const Checkpoint::State& state) {
  if (state.given.size() > 1)
    return failure(ErrorCode::unsupported, "a list of files takes no shared catalog");
  if (state.sources.has_copies())
    return failure(ErrorCode::unsupported,
                   "compressed storages were copied to memory that only this process has, so that "
                   "its catalog is of no use to others");
  const format::Parsed* const own = state.catalogs.own_if_any();
  if (!own->composed.empty())
    return failure(ErrorCode::unsupported,
                   "a catalog cannot say which tensors are composed of others");
  if (!own->facts.unsupported.empty())
    return failure(ErrorCode::unsupported, "a catalog cannot say which tensors are not listed");
  if (is_told_whole(*own, state.is_set())) return {};
  return failure(ErrorCode::unsupported,
                 state.is_set() ? "of sets of files, only catalogs of those of torch.save or of "
                                  "safetensors, of one byte order, are shared"
                                : "only catalogs of files of torch.save are shared");
}

// Catalogs that processes which were killed have left half written.
void remove_unfinished(const os::RuntimeDirectory& directory) {
  const auto names = os::names_in(directory.descriptor(), unfinished_prefix);
  if (!names) return;
  for (const std::string& name : *names)
    if (name.ends_with(".tmp")) os::remove_unlocked(directory.descriptor(), name);
}

// The block in two parts.
struct Parts {
  Parts(const catalog::Description& description, const catalog::Catalog& catalog)
      : preamble(catalog::make_preamble(description, catalog)), both{preamble, catalog.block()} {}
  std::vector<std::byte> preamble;
  std::array<std::span<const std::byte>, 2> both;
};

}  // namespace

std::string catalog_name(const Checkpoint::State& state) {
  const Sources& sources = state.sources;
  std::string name = std::string(catalog_prefix) + os::key_of(sources.front().info.generation);
  if (state.has_index || sources.size() == 1) return name;
  // Not that of its first file, which may be opened alone.
  static_assert(std::has_unique_object_representations_v<Generation>);
  std::vector<Generation> all;
  for (const SourceFile& source : sources) all.push_back(source.info.generation);
  std::array<char, 16> text;
  const std::uint64_t sum = XXH3_64bits(all.data(), all.size() * sizeof(Generation));
  char* const end = std::to_chars(text.data(), text.data() + text.size(), sum, 16).ptr;
  return name + "-" + std::string(text.data(), end);
}

Result<void> publish_catalog(Checkpoint::State& state, const os::RuntimeDirectory& directory) {
  TRY(check_is_whole(state));
  TRY(check_settled(state));
  TRY_ASSIGN(const catalog::Description description, describe(state));
  const Parts parts(description, state.catalogs.own_if_any()->catalog);
  Result<void> published = os::publish_block(directory, catalog_name(state), parts.both);
  if (published) remove_unfinished(directory);
  return published;
}

void replace_damaged_catalog(Checkpoint::State& state) noexcept {
  try {
    const Result<os::RuntimeDirectory> directory = os::RuntimeDirectory::open();
    if (!directory) return;
    if (state.catalogs.own_if_any() == nullptr || !publish_catalog(state, *directory))
      os::remove_block(*directory, catalog_name(state));
  } catch (const std::bad_alloc&) {
    // It stays, and is found damaged again.
  }
}

Result<int> seal_catalog(Checkpoint::State& state) {
  TRY_ASSIGN(const catalog::Catalog* const catalog, state.catalogs.whole());
  if (state.catalogs.own_if_any() != nullptr) TRY(check_is_whole(state));
  TRY(check_settled(state));
  TRY_ASSIGN(const catalog::Description description, describe(state));
  TRY_ASSIGN(os::UniqueFd sealed, os::seal_block(Parts(description, *catalog).both));
  return sealed.release();
}

}  // namespace weightmap
