#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "mmap/page_loader.hpp"
#include "mmap/pages/file_window.hpp"
#include "mmap/pages/huge_sample.hpp"
#include "mmap/pages/page_cache.hpp"
#include "mmap/pages/page_table.hpp"
#include "mmap/pages/process_faults.hpp"
#include "mmap/pages/smaps.hpp"
#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/inspect/processes.hpp"
#include "runtime/system/file/file_system_extras.hpp"
#include "runtime/system/file/mount.hpp"
#include "runtime/system/page_size.hpp"
#include "weightmap/inspect.hpp"

namespace weightmap {
namespace {

constexpr std::uint64_t step_bytes = std::uint64_t{8} << 20;

// The content of page cache and page table by page.
struct Pages {
  std::vector<mmap::CachedPages> cached;  // by source
  // For each mapping of the checkpoint. nullopt if the system does not report it.
  std::optional<std::array<mmap::MappedPages, 2>> mapped;
};

// Returns the checkpoint's mappings; the second may be empty.
std::array<std::span<const std::byte>, 2> mappings_of(const Checkpoint::State& state) {
  const mmap::Mapping* const writable = state.copy_on_write.load(std::memory_order_acquire);
  return {state.mapping.bytes(), writable ? writable->bytes() : std::span<const std::byte>{}};
}

Result<mmap::MappedMemory> memory_of(const Checkpoint::State& state) {
  return mmap::mapped_memory(mappings_of(state));
}

// The system sums up the shares of all pages, so the copies' part is known only if none is shared.
std::optional<std::uint64_t> anonymous_pss(Checkpoint::State& state,
                                           const mmap::MappedMemory& memory) {
  if (memory.anonymous == 0) return 0;
  std::uint64_t unshared = 0;
  for (const std::span<const std::byte> mapping : mappings_of(state))
    unshared += mmap::unshared_copies(mapping).value_or(0);
  return unshared == memory.anonymous ? std::optional(unshared) : std::nullopt;
}

std::optional<std::array<mmap::MappedPages, 2>> mapped_pages_of(Checkpoint::State& state) {
  const auto [main, copies] = mappings_of(state);
  Result<mmap::MappedPages> of_main = mmap::MappedPages::of(main);
  Result<mmap::MappedPages> of_copies = mmap::MappedPages::of(copies);
  if (!of_main || !of_copies) return std::nullopt;
  return std::array{std::move(*of_main), std::move(*of_copies)};
}

// Samples all files. Copies of compressed storages are in no file.
mmap::HugeSample sample_of(const Sources& sources, const Pages& pages) {
  mmap::HugeSample all;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].is_copy()) continue;
    const mmap::HugeSample sample = mmap::sample_huge_pages(sources[i].file, pages.cached[i]);
    all.bytes += sample.bytes;
    all.huge_bytes += sample.huge_bytes;
    all.could_be_huge = all.could_be_huge || sample.could_be_huge;
  }
  return all;
}

Residency describe(const Sources& sources, const Pages& pages, const mmap::MappedMemory& memory,
                   const mmap::ProcessFaults& faults) {
  mmap::HugeSample sample = sample_of(sources, pages);
  if (memory.huge > 0) sample.could_be_huge = true;  // a page of these files is
  Residency residency;
  residency.file_bytes = sources.bytes();
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (!sources[i].is_copy()) residency.cached_bytes += pages.cached[i].cached_bytes();
  residency.resident_bytes = memory.resident;
  residency.anonymous_bytes = memory.anonymous;
  residency.huge_mapped_bytes = memory.huge + memory.anonymous_huge;
  residency.pss_bytes = memory.proportional;
  residency.minor_faults_since_open = faults.minor;
  residency.major_faults_since_open = faults.major;
  residency.sampled_bytes = sample.bytes;
  residency.sampled_huge_bytes = sample.huge_bytes;
  residency.is_fragmented = sample.is_fragmented();
  return residency;
}

RangeResidency describe(const Sources& sources, const Pages& pages, std::size_t source,
                        const ByteRange& at) {
  const auto [position, length] = at;
  RangeResidency range;
  range.source = source;
  range.file_offset = position - sources[source].base();
  range.extent_bytes = length;
  range.cached_bytes = pages.cached[source].cached_bytes(range.file_offset, length);
  if (!pages.mapped) return range;
  mmap::MappedBytes bytes;
  for (const mmap::MappedPages& mapped : *pages.mapped) bytes += mapped.bytes(position, length);
  range.resident_bytes = bytes.resident;
  range.anonymous_bytes = bytes.anonymous;
  range.huge_mapped_bytes = bytes.huge;
  return range;
}

void describe_ranges(const Sources& sources, const catalog::Catalog& catalog, const Pages& pages,
                     ResidencyReport& report) {
  const std::span<const catalog::StorageEntry> storages = catalog.storages();
  report.tensors.reserve(catalog.size());
  for (const catalog::Entry& entry : catalog.entries())
    report.tensors.push_back(
        {describe(sources, pages, storages[entry.storage].source, {entry.position, entry.extent}),
         report.tensors.size()});
  report.storages.reserve(storages.size());
  for (const catalog::StorageEntry& storage : storages)
    report.storages.push_back(
        {describe(sources, pages, storage.source, {storage.position, storage.nbytes}),
         std::string(catalog.text(storage.key))});
}

Result<std::vector<mmap::CachedPages>> cached_pages_of(const Sources& sources) {
  std::vector<mmap::CachedPages> pages;
  for (const SourceFile& source : sources) {
    Result<mmap::CachedPages> cached = mmap::CachedPages::of(source.file);
    if (!cached) return tl::unexpected<Error>(source.about(std::move(cached.error())));
    pages.push_back(std::move(*cached));
  }
  return pages;
}

Result<ResidencyReport> examine(Checkpoint::State& state) {
  TRY(state.check_view_memory());
  TRY_ASSIGN(const catalog::Catalog* const catalog, state.placed());
  const mmap::ProcessFaults faults = mmap::faults_since(state.faults_at_open);
  TRY_ASSIGN(const mmap::MappedMemory memory, memory_of(state));
  TRY_ASSIGN(std::vector<mmap::CachedPages> cached, cached_pages_of(state.sources));
  const Pages pages{std::move(cached), mapped_pages_of(state)};
  ResidencyReport report;
  report.file = describe(state.sources, pages, memory, faults);
  report.file.pss_anonymous_bytes = anonymous_pss(state, memory);
  describe_ranges(state.sources, *catalog, pages, report);
  return report;
}

// The system tells nothing of the pages of the file below. What nobody has mapped stays for want of
// a place on a disk: of any (a file system that reports no extents), or so far.
void explain_on_overlay(const os::File& file, EvictReport& report) {
  const auto users = processes({"/proc/self/fd/" + std::to_string(file.descriptor())});
  if (!users || !users->mapped.empty()) return;
  if (os::extents_of(file))
    report.unwritten_bytes = report.cached_after;
  else
    report.lives_in_memory = true;
}

Result<EvictReport> evict_file(const os::File& file, const Progress& progress = {}) {
  TRY_ASSIGN(const std::uint64_t before, mmap::cached_bytes_of(file));
  TRY_ASSIGN(const std::uint64_t after, mmap::evict(file, progress));
  EvictReport report;
  report.file_bytes = file.size();
  report.cached_before = before;
  report.cached_after = after;
  if (after > 0) report.unwritten_bytes = mmap::unwritten_bytes_of(file);
  report.lives_in_memory = mmap::lives_in_memory(file);
  if (after > 0 && os::is_overlay(file)) explain_on_overlay(file, report);
  return report;
}

// Returns the huge pages in which anything is cached; neighbours are joined into steps.
std::vector<ByteRange> steps_of(const mmap::CachedPages& cached, std::uint64_t file_bytes) {
  std::vector<ByteRange> steps;
  for (std::uint64_t at = 0; at < file_bytes; at += os::large_page) {
    const std::uint64_t length = std::min(os::large_page, file_bytes - at);
    if (cached.cached_bytes(at, length) == 0) continue;
    const bool joins = !steps.empty() && steps.back().offset + steps.back().length == at &&
                       steps.back().length < step_bytes;
    if (joins)
      steps.back().length += length;
    else
      steps.push_back({at, length});
  }
  return steps;
}

Result<std::uint64_t> read_again(const os::File& file, const mmap::Mapping& mapping,
                                 const std::vector<ByteRange>& steps, const Progress& progress) {
  std::uint64_t all = 0;
  for (const ByteRange& step : steps) all += step.length;
  mmap::PageLoader loader({file, mapping}, mmap::LoadMethod::populate);
  std::uint64_t done = 0;
  for (const ByteRange& step : steps) {
    TRY(loader.load(step.offset, step.length));
    done += step.length;
    TRY(go_on(progress, done, all));
  }
  return done;
}

Result<RepairReport> repair_file(const os::File& file, const Progress& progress) {
  TRY_ASSIGN(const mmap::CachedPages cached, mmap::CachedPages::of(file));
  // Requests huge pages by default; nothing is touched before the eviction.
  TRY_ASSIGN(const mmap::Mapping mapping, mmap::Mapping::map(file, {}));
  if (mmap::best_load_method(mapping) != mmap::LoadMethod::populate)
    return failure(ErrorCode::unsupported,
                   "this kernel cannot read a file in large pieces (Linux 5.14 does)");
  const std::vector<ByteRange> steps = steps_of(cached, file.size());
  TRY_ASSIGN(const EvictReport evicted, evict_file(file));
  TRY_ASSIGN(const std::uint64_t read, read_again(file, mapping, steps, progress));
  TRY_ASSIGN(const mmap::MappedMemory memory, mmap::mapped_memory(mapping.bytes()));
  TRY_ASSIGN(const std::uint64_t after, mmap::cached_bytes_of(file));
  return RepairReport{evicted, read, memory.huge, after};
}

Result<void> check_is_mapped(const Checkpoint::State& state) {
  if (!state.is_in_memory()) return {};
  return about_shown({ErrorCode::unsupported, "is no mapped file, whose pages could be counted"},
                     state.shown_name());
}

void add(const EvictReport& part, EvictReport& all) {
  all.file_bytes += part.file_bytes;
  all.cached_before += part.cached_before;
  all.cached_after += part.cached_after;
  all.unwritten_bytes += part.unwritten_bytes;
  all.lives_in_memory = all.lives_in_memory || part.lives_in_memory;
}

}  // namespace

Result<ResidencyReport> residency(const Checkpoint& checkpoint) {
  Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  TRY(check_is_mapped(state));
  return about_shown(examine(state), state.shown_name());
}

Result<std::uint64_t> anonymous_bytes(const Checkpoint& checkpoint) {
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  TRY(check_is_mapped(state));
  TRY_ASSIGN(mmap::MappedMemory memory, about_shown(memory_of(state), state.shown_name()));
  return memory.anonymous;
}

bool drops_pages_at_open(const Checkpoint& checkpoint) {
  const Sources& sources = Checkpoint::Access::state(checkpoint).sources;
  return std::any_of(sources.begin(), sources.end(), [](const SourceFile& source) {
    return !source.is_copy() && mmap::drops_pages_at_open(source.file);
  });
}

Result<EvictReport> evict(const std::filesystem::path& path, const Progress& progress) {
  TRY_ASSIGN(const std::vector<std::filesystem::path> files, files_of(path));
  EvictReport all;
  for (const std::filesystem::path& each : files) {
    const std::filesystem::path& shown = files.size() == 1 ? path : each;
    TRY_ASSIGN(const os::File file, about_file(os::File::open(each, false), shown));
    TRY_ASSIGN(const EvictReport report, about_file(evict_file(file, progress), shown));
    add(report, all);
  }
  return all;
}

Result<RepairReport> repair(const std::filesystem::path& path, const Progress& progress) {
  TRY_ASSIGN(const os::File file, about_file(os::File::open(path, false), path));
  return about_file(repair_file(file, progress), path);
}

}  // namespace weightmap
