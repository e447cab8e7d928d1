// The stages of an open, each on the results of those before it.
#include <algorithm>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/opened_file.hpp"
#include "bench/stage_bench.hpp"
#include "runtime/bytes/source.hpp"
#include "runtime/pickle/machine.hpp"
#include "runtime/torch/archive_records.hpp"
#include "runtime/torch/make_catalog.hpp"
#include "runtime/zip/record_bytes.hpp"
#include "weightmap/options.hpp"

namespace weightmap::bench {
namespace {

void set_items(benchmark::State& state, std::size_t each) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(each));
}

// `part` of `whole`, to see whether a stage went the way that its name says.
void set_share(benchmark::State& state, const char* name, std::uint64_t part, std::size_t whole) {
  state.counters[name] = static_cast<double>(part) / static_cast<double>(whole);
}

// For a tree to take over; it gives the bytes back at its end.
bytes::Buffer copy_of(std::span<const std::byte> bytes, std::pmr::memory_resource& memory) {
  bytes::Buffer copy(bytes.size(), memory);
  std::copy(bytes.begin(), bytes.end(), copy.data());
  return copy;
}

void read_directory(benchmark::State& state, OpenedFile& opened, const bytes::Source& source) {
  repeat(state, [&]() -> Result<void> {
    bytes::Windows windows(source, opened.memory);
    const Result<zip::Directory> directory =
        zip::Directory::read(windows, Limits().directory_bytes);
    if (!directory) return error_of(directory);
    benchmark::DoNotOptimize(directory->records().data());
    return {};
  });
  set_items(state, opened.directory.records().size());
}

void directory_from_file(benchmark::State& state, OpenedFile& opened) {
  read_directory(state, opened, opened.file);
}

void directory_from_memory(benchmark::State& state, OpenedFile& opened) {
  bytes::Buffer content(opened.file.size(), opened.memory);
  if (const Result<void> read = opened.file.read(0, content.span()); !read)
    return skip(state, read.error());
  read_directory(state, opened, bytes::MemorySource(content.span()));
}

// Reads it from the file and compares its CRC-32.
void pickle_record(benchmark::State& state, OpenedFile& opened) {
  const zip::Record& record = *opened.directory.find(torch::pickle_record);
  repeat(state, [&]() -> Result<void> {
    bytes::Windows windows(opened.file, opened.memory);
    const Result<zip::RecordBytes> content =
        zip::read_record(opened.directory, record, windows, Limits().pickle_bytes);
    if (!content) return error_of(content);
    benchmark::DoNotOptimize(content->bytes.data());
    return {};
  });
  set_items(state, opened.table->tensors.size());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(record.size));
}

void pickle_packed(benchmark::State& state, OpenedFile& opened) {
  bytes::Buffer pickle = copy_of(opened.tree->pickle(), opened.memory);
  const std::span<const std::byte> view = pickle.span();
  std::uint64_t packed = 0;
  repeat(state, [&]() -> Result<void> {
    Result<std::unique_ptr<value::Tree>> tree = pickle::parse(
        std::move(pickle), view, opened.pickle_offset, parse_limits(view.size()), opened.memory);
    if (!tree) return error_of(tree);
    benchmark::DoNotOptimize((*tree)->root());
    packed = (*tree)->packed_count();
    pickle = std::move(**tree).release_pickle();
    return {};
  });
  set_share(state, "packed", packed, opened.table->tensors.size());
  set_items(state, opened.table->tensors.size());
}

// The same pickle by the general handlers alone: what one costs that is spelled in another way.
void pickle_general(benchmark::State& state, OpenedFile& opened) {
  bytes::Buffer pickle = copy_of(opened.tree->pickle(), opened.memory);
  const std::span<const std::byte> view = pickle.span();
  const pickle::ParseLimits limits = parse_limits(view.size());
  const std::size_t chunk_bytes = view.size() + view.size() / 8 + 16384;  // as parse() does
  repeat(state, [&]() -> Result<void> {
    value::Tree tree(std::move(pickle), view, opened.memory, chunk_bytes, limits.budget_bytes);
    pickle::Machine machine(tree, opened.pickle_offset, limits, pickle::Machine::Packing::off);
    if (!machine.run()) return tl::unexpected<Error>(machine.take_error());
    benchmark::DoNotOptimize(tree.root());
    pickle = std::move(tree).release_pickle();
    return {};
  });
  set_items(state, opened.table->tensors.size());
}

// Room for the tables of one open, used again by each iteration.
std::size_t table_bytes(const OpenedFile& opened) {
  return 4096 + opened.table->tensors.size() * 130;
}

void read_tensors(benchmark::State& state, OpenedFile& opened) {
  bytes::Buffer room(table_bytes(opened), opened.memory);
  repeat(state, [&]() -> Result<void> {
    std::pmr::monotonic_buffer_resource tables(room.data(), room.size(), &opened.memory);
    const Result<torch::TensorTable> table =
        torch::read_tensors(*opened.tree, {opened.pickle_offset, {}}, tables, opened.next_mark());
    if (!table) return error_of(table);
    benchmark::DoNotOptimize(table->tensors.data());
    return {};
  });
  set_items(state, opened.table->tensors.size());
}

void locate_storages(benchmark::State& state, OpenedFile& opened) {
  bytes::Buffer room(table_bytes(opened), opened.memory);
  const std::span<const zip::StorageRequest> storages = opened.table->storages.storages();
  OpenStats stats;
  repeat(state, [&]() -> Result<void> {
    std::pmr::monotonic_buffer_resource tables(room.data(), room.size(), &opened.memory);
    stats = {};
    const Result<std::pmr::vector<zip::StorageExtent>> extents = zip::locate_storages(
        opened.directory, storages, opened.locate, opened.windows, opened.file, stats, tables);
    if (!extents) return error_of(extents);
    benchmark::DoNotOptimize(extents->data());
    return {};
  });
  set_share(state, "calculated", stats.storages_calculated, storages.size());
  set_items(state, storages.size());
}

void make_catalog(benchmark::State& state, OpenedFile& opened) {
  const torch::CatalogInput input{*opened.tree, *opened.table, *opened.extents, false,
                                  opened.pickle_offset};
  repeat(state, [&]() -> Result<void> {
    const Result<catalog::Catalog> catalog = torch::make_catalog(input, opened.memory);
    if (!catalog) return error_of(catalog);
    benchmark::DoNotOptimize(catalog->entries().data());
    return {};
  });
  set_items(state, opened.table->tensors.size());
}

}  // namespace

void add_open_stages(const std::string& files) {
  const auto prepare = [files](const benchmark::State& state) {
    const std::int64_t tensors = state.range(0);
    return OpenedFile::open(files + "/tensors_" + std::to_string(tensors) + ".pt",
                            static_cast<std::uint64_t>(tensors));
  };
  const auto add = [&prepare](const char* name, void (*run)(benchmark::State&, OpenedFile&)) {
    add_stage(name, prepare, run)->Arg(10)->Arg(1000)->Arg(100000);
  };
  add("directory_from_memory", directory_from_memory);
  add("directory_from_file", directory_from_file);
  add("pickle_record", pickle_record);
  add("pickle_packed", pickle_packed);
  add("pickle_general", pickle_general);
  add("read_tensors", read_tensors);
  add("locate_storages", locate_storages);
  add("make_catalog", make_catalog);
}

}  // namespace weightmap::bench
