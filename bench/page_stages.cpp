// What is done to the pages of a file that is cached as a whole.
#include <memory>
#include <string>
#include <utility>

#include "bench/stage_bench.hpp"
#include "mmap/file.hpp"
#include "mmap/fill.hpp"
#include "mmap/mapping.hpp"
#include "mmap/pages/mapped_memory.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/residency.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::bench {
namespace {

struct CachedFile {
  os::File file;
  Checkpoint checkpoint;
};

// Maps nothing that stays mapped.
Result<void> bring_in(const std::string& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return error_of(checkpoint);
  Result<Warmer> warmer = Warmer::start(*checkpoint);
  if (!warmer) return error_of(warmer);
  const Result<WarmReport> report = warmer->wait();
  return report ? Result<void>{} : error_of(report);
}

// Fails with io if the file does not stay in the page cache.
Result<std::unique_ptr<CachedFile>> open_cached(const std::string& path) {
  Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return error_of(checkpoint);
  Result<os::File> file = os::File::open(path, false);
  if (!file) return error_of(file);
  for (bool again : {true, false}) {
    const Result<ResidencyReport> report = residency(*checkpoint);
    if (!report) return error_of(report);
    if (report->file.cached_bytes == file->size()) break;
    if (!again)
      return failure(ErrorCode::io, path + ": " + std::to_string(report->file.cached_bytes) +
                                        " of " + std::to_string(file->size()) +
                                        " bytes are cached, expected all");
    if (const Result<void> ok = bring_in(path); !ok) return error_of(ok);
  }
  return std::make_unique<CachedFile>(CachedFile{std::move(*file), std::move(*checkpoint)});
}

void set_bytes(benchmark::State& state, const CachedFile& cached) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(cached.file.size()));
}

void look_at_residency(benchmark::State& state, CachedFile& cached) {
  repeat(state, [&]() -> Result<void> {
    const Result<ResidencyReport> report = residency(cached.checkpoint);
    if (!report) return error_of(report);
    benchmark::DoNotOptimize(report->file.cached_bytes);
    return {};
  });
  set_bytes(state, cached);
}

void map_and_unmap(benchmark::State& state, CachedFile& cached) {
  repeat(state, [&]() -> Result<void> {
    const Result<os::Mapping> mapping = os::Mapping::map(cached.file, {});
    if (!mapping) return error_of(mapping);
    benchmark::DoNotOptimize(mapping->bytes().data());
    return {};
  });
}

using Fill = Result<void> (*)(const os::File&, const os::Mapping&);

Result<void> fill_by_populate(const os::File& file, const os::Mapping& mapping) {
  return os::Filler({file, mapping}, os::FillMethod::populate).fill(0, file.size());
}

Result<void> fill_by_faults(const os::File&, const os::Mapping& mapping) {
  constexpr std::size_t page = 4096;  // the smallest there is
  for (std::size_t at = 0; at < mapping.bytes().size(); at += page)
    benchmark::DoNotOptimize(*static_cast<const volatile std::byte*>(&mapping.bytes()[at]));
  return {};
}

Result<os::Mapping> map_every_page(const os::File& file, Fill fill) {
  Result<os::Mapping> mapping = os::Mapping::map(file, {});
  if (!mapping) return mapping;
  const Result<void> filled = fill(file, *mapping);
  return filled ? std::move(mapping) : error_of(filled);
}

// `large` is the share of the pages that come 2 MiB at a time, on which the time depends. Unmapping
// is not counted, nor the first time, as in repeat().
void time_mapping(benchmark::State& state, const CachedFile& cached, Fill fill) {
  Result<os::Mapping> mapping = map_every_page(cached.file, fill);
  if (!mapping) return skip(state, mapping.error());
  const Result<os::MappedMemory> memory = os::mapped_memory(mapping->bytes());
  if (!memory) return skip(state, memory.error());
  state.counters["large"] =
      static_cast<double>(memory->huge) / static_cast<double>(cached.file.size());
  for (auto _ : state) {
    state.PauseTiming();
    *mapping = os::Mapping();
    state.ResumeTiming();
    mapping = map_every_page(cached.file, fill);
    if (!mapping) return skip(state, mapping.error());
  }
  set_bytes(state, cached);
}

void populate(benchmark::State& state, CachedFile& cached) {
  time_mapping(state, cached, fill_by_populate);
}
void fault(benchmark::State& state, CachedFile& cached) {
  time_mapping(state, cached, fill_by_faults);
}

// Of bytes that are mapped already.
void demand(benchmark::State& state, const CachedFile& cached, const TensorView& view) {
  repeat(state, [&] { return cached.checkpoint.demand(view); });
}

// Not the first one: what an open has read is cached in small pieces.
TensorView tensor_of(const CachedFile& cached) {
  const TensorRange tensors = cached.checkpoint.tensors();
  return tensors[tensors.size() / 2].view;
}

void demand_tensor(benchmark::State& state, CachedFile& cached) {
  demand(state, cached, tensor_of(cached));
}

void demand_4_kib(benchmark::State& state, CachedFile& cached) {
  const Result<TensorSlice> rows = tensor_of(cached).narrow(0, 0, 2);
  if (!rows) return skip(state, rows.error());
  demand(state, cached, *rows);
}

}  // namespace

void add_page_stages(const std::string& files) {
  const auto gibibyte = [files](const benchmark::State&) {
    return open_cached(files + "/gibibyte.pt");
  };
  add_stage("residency", gibibyte, look_at_residency);
  add_stage("map", gibibyte, map_and_unmap);
  add_stage("populate", gibibyte, populate);
  add_stage("fault", gibibyte, fault);
  add_stage("demand_tensor", gibibyte, demand_tensor);
  add_stage("demand_4_kib", gibibyte, demand_4_kib);
}

}  // namespace weightmap::bench
