#include "runtime/shared_catalog/publish_catalog.hpp"

#include <array>
#include <chrono>
#include <new>
#include <system_error>

#include "mmap/directory.hpp"
#include "mmap/memory/sealed_memory.hpp"
#include "mmap/process/shared_block.hpp"
#include "runtime/base/try.hpp"
#include "runtime/shared_catalog/published.hpp"

namespace weightmap {
namespace {

// Systems note changes by a clock that ticks 100 to 1000 times a second; file systems that keep
// whole seconds only (ext3, small inodes of ext4, some servers) or even ones (vfat) by that.
constexpr std::chrono::milliseconds clock_tick(20);
constexpr std::chrono::seconds coarse_tick(2);

bool is_coarse(std::int64_t time_ns) noexcept { return time_ns % 1'000'000'000 == 0; }

catalog::Description describe(const Checkpoint::State& state) {
  const CheckpointInfo& info = state.info;
  const OpenStats& stats = state.stats;
  catalog::Description made;
  made.generation = state.sources.front().info.generation;
  made.limits = state.options.limits;
  made.version = info.version;
  made.storage_alignment = info.storage_alignment;
  made.pickle_bytes = info.pickle_bytes;
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
Result<void> check_settled(const Checkpoint::State& state) {
  if (os::is_sealed(state.sources.front().file.descriptor())) return {};
  const Generation& opened = state.sources.front().info.generation;
  const std::chrono::nanoseconds changed(opened.ctime_ns);
  const bool coarse = is_coarse(opened.ctime_ns) || is_coarse(opened.mtime_ns);
  const std::chrono::milliseconds tick = coarse ? coarse_tick : clock_tick;
  if (changed + tick <= state.began.time_since_epoch()) return {};
  return failure(ErrorCode::io,
                 "the file was changed less than " + std::to_string(tick.count()) +
                     " ms before it was opened, so that its times might not show another change");
}

// A catalog says all that there is to say of files of torch.save with dense tensors only.
Result<void> check_is_whole(const Checkpoint::State& state) {
  if (state.sources.size() > 1 && !state.sources.has_copies())
    return failure(ErrorCode::unsupported, "a checkpoint of several files takes no shared catalog");
  if (state.sources.has_copies())
    return failure(ErrorCode::unsupported,
                   "compressed storages were copied to memory that only this process has, so that "
                   "its catalog is of no use to others");
  const format::Parsed* const own = state.catalogs.own_if_any();
  if (own != nullptr && own->facts.format == "torch_zip" && own->composed.empty()) return {};
  return failure(ErrorCode::unsupported,
                 own == nullptr || own->composed.empty()
                     ? "only catalogs of files of torch.save are shared"
                     : "a catalog cannot say which tensors are composed of others");
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
  Parts(const Checkpoint::State& state, const catalog::Catalog& catalog)
      : preamble(catalog::make_preamble(describe(state), catalog)),
        both{preamble, catalog.block()} {}
  std::vector<std::byte> preamble;
  std::array<std::span<const std::byte>, 2> both;
};

}  // namespace

std::string catalog_name(const Generation& generation) {
  return std::string(catalog_prefix) + os::key_of(generation);
}

Result<void> publish_catalog(Checkpoint::State& state, const os::RuntimeDirectory& directory) {
  TRY(check_is_whole(state));
  TRY(check_settled(state));
  const Parts parts(state, state.catalogs.own_if_any()->catalog);
  Result<void> published =
      os::publish_block(directory, catalog_name(state.sources.front().info.generation), parts.both);
  if (published) remove_unfinished(directory);
  return published;
}

void replace_damaged_catalog(Checkpoint::State& state) noexcept {
  try {
    const Result<os::RuntimeDirectory> directory = os::RuntimeDirectory::open();
    if (!directory) return;
    if (state.catalogs.own_if_any() == nullptr || !publish_catalog(state, *directory))
      os::remove_block(*directory, catalog_name(state.sources.front().info.generation));
  } catch (const std::bad_alloc&) {
    // It stays, and is found damaged again.
  }
}

Result<int> seal_catalog(Checkpoint::State& state) {
  TRY_ASSIGN(const catalog::Catalog* const catalog, state.catalogs.whole());
  if (state.catalogs.own_if_any() != nullptr) TRY(check_is_whole(state));
  TRY(check_settled(state));
  TRY_ASSIGN(os::UniqueFd sealed, os::seal_block(Parts(state, *catalog).both));
  return sealed.release();
}

}  // namespace weightmap
