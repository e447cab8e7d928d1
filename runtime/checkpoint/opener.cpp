#include "runtime/checkpoint/opener.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "runtime/archive/open_archive.hpp"
#include "runtime/pickle/parse.hpp"
#include "runtime/torch/make_catalog.hpp"
#include "runtime/zip/record_bytes.hpp"
#include "runtime/zip/storage_offsets.hpp"

namespace weightmap {
namespace {

// Measures one stage after another.
class Stopwatch {
 public:
  std::chrono::nanoseconds lap() noexcept {
    const auto now = std::chrono::steady_clock::now();
    return now - std::exchange(last_, now);
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

template <class T>
tl::unexpected<Error> error_of(const Result<T>& result) {
  return tl::unexpected<Error>(result.error());
}

}  // namespace

Result<void> Opener::run() {
  Stopwatch total;
  if (Result<void> ok = parse(); !ok) return ok;
  Stopwatch stage;
  if (Result<void> ok = map(state_, options_); !ok) return ok;
  stats_.mapping = stage.lap();
  parsed_.memory.trim();
  state_.set_own();
  stats_.total = total.lap();
  summarize();
  return {};
}

Result<void> Opener::parse() {
  Stopwatch stage;
  if (Result<void> ok = read_archive(); !ok) return ok;
  stats_.directory = stage.lap();
  if (Result<void> ok = read_pickle(); !ok) return ok;
  stats_.pickle = stage.lap();
  if (Result<void> ok = place_tensors(); !ok) return ok;
  stats_.catalog = stage.lap();
  return {};
}

Result<void> Opener::read_archive() {
  // Not under threads that read the mapping already, of a catalog of another process.
  if (state_.mapping.bytes().empty()) state_.file.advise_metadata();
  Result<zip::Directory> directory = read_directory(state_.file, *windows_, options_.limits);
  if (!directory) return error_of(directory);
  directory_ = std::move(*directory);
  if (Result<void> ok = torch::check_is_checkpoint(directory_); !ok) return ok;
  // One read for data.pkl, the small records behind it and the first storage's local header.
  const zip::Record& pickle = *directory_.find(torch::pickle_record);
  // A compressed pickle, which torch never writes, could unfold to a thousand times its size.
  const std::uint64_t limit =
      pickle.method == zip::Method::deflated
          ? std::min(options_.limits.pickle_bytes, options_.limits.record_bytes)
          : options_.limits.pickle_bytes;
  if (pickle.size > limit)
    return failure(ErrorCode::limit_exceeded,
                   "data.pkl has " + std::to_string(pickle.size) + " bytes, the limit is " +
                       std::to_string(limit),
                   pickle.header_offset);
  if (const auto head = torch::head_of(directory_))
    if (const auto read = windows_->bytes(head->offset, head->length); !read) return error_of(read);
  Result<torch::ArchiveRecords> records =
      torch::read_archive_records(directory_, *windows_, *options_.missing_byte_order);
  if (!records) return error_of(records);
  records_ = std::move(*records);
  return {};
}

Result<void> Opener::read_pickle() {
  const zip::Record& record = *directory_.find(torch::pickle_record);
  Result<zip::RecordBytes> content =
      zip::read_record(directory_, record, *windows_, options_.limits.pickle_bytes);
  if (!content) return error_of(content);
  pickle_offset_ = content->file_offset;
  const std::span<const std::byte> pickle = content->bytes;
  bytes::Buffer memory = std::move(*content).release(*windows_);
  const pickle::ParseLimits limits{options_.limits.base_memory + 5 * pickle.size(),
                                   options_.limits.depth};
  Result<std::unique_ptr<pickle::Tree>> tree =
      pickle::parse(std::move(memory), pickle, pickle_offset_, limits, parsed_.memory);
  if (!tree) return torch::in_pickle(tree.error());
  parsed_.tree = std::move(*tree);
  return {};
}

Result<void> Opener::place_tensors() {
  // One block for all tables that live only until the catalog is made: 124 bytes a tensor.
  std::pmr::monotonic_buffer_resource tables(4096 + parsed_.tree->packed_count() * 130,
                                             &parsed_.memory);
  const Result<torch::TensorTable> table =
      torch::read_tensors(*parsed_.tree, {pickle_offset_, options_.limits}, tables);
  if (!table) return torch::in_pickle(table.error());
  zip::LocateOptions locate;
  locate.folder = torch::storage_folder;
  locate.alignment = records_.storage_alignment;
  locate.verify_headers = *options_.verify >= Verify::headers;
  const Result<std::pmr::vector<zip::StorageExtent>> extents = zip::locate_storages(
      directory_, table->storages.storages(), locate, *windows_, state_.file, stats_, tables);
  if (!extents) return error_of(extents);
  release_metadata();
  stats_.cache_hits = table->storages.cache_hits();
  constexpr bool native_is_big = std::endian::native == std::endian::big;
  Result<catalog::Catalog> made = torch::make_catalog(
      {*parsed_.tree, *table, *extents, records_.big_endian != native_is_big, pickle_offset_},
      parsed_.memory);
  if (!made) return error_of(made);
  parsed_.catalog = std::move(*made);
  keep_nodes(*table);
  return {};
}

void Opener::keep_nodes(const torch::TensorTable& table) {
  std::pmr::vector<Parsed::Node>& nodes = parsed_.nodes;
  nodes.clear();
  nodes.reserve(table.tensors.size());
  for (const torch::TensorSpec& spec : table.tensors)
    nodes.push_back({spec.position, static_cast<std::uint32_t>(nodes.size())});
  const auto earlier = [](const Parsed::Node& a, const Parsed::Node& b) {
    return a.position < b.position;
  };
  // They come in this order but where a container is reached again, or is filled late.
  if (!std::is_sorted(nodes.begin(), nodes.end(), earlier))
    std::stable_sort(nodes.begin(), nodes.end(), earlier);
}

// The catalog is made from the pages that the directory lay in.
void Opener::release_metadata() {
  stats_.reads = windows_->reads();
  stats_.bytes_read = windows_->bytes_read();
  directory_ = zip::Directory();
  windows_.reset();
}

Result<void> Opener::map(State& state, const OpenOptions& options) {
  state.file.advise_mapping();
  os::MapOptions how{};
  how.sharing = *options.sharing;
  how.writable = *options.writable;
  how.populate = *options.populate;
  how.no_reserve = *options.no_reserve;
  how.locked = *options.locked;
  how.huge_pages = *options.huge_pages;
  how.guard = *options.protection == Protection::guard;
  Result<os::Mapping> mapping = os::Mapping::map(state.file, how);
  if (!mapping) return error_of(mapping);
  state.mapping = std::move(*mapping);
  state.info.sharing = state.mapping.sharing();
  state.info.sharing_fell_back = state.mapping.fell_back();
  state.info.writable = *options.writable;
  if (state.info.sharing_fell_back && options.log)
    options.log("the file system refused MAP_SHARED; mapped with MAP_PRIVATE instead");
  return {};
}

void Opener::summarize() {
  CheckpointInfo& info = state_.info;
  info.format = "torch_zip";
  info.version = records_.version;
  info.format_version = records_.format_version;
  info.byteorder = records_.big_endian ? "big" : "little";
  info.byteorder_assumed = records_.byte_order_assumed;
  info.storage_alignment = records_.storage_alignment;
  info.tensors = parsed_.catalog.size();
  info.tensor_bytes = parsed_.catalog.tensor_bytes();
  info.storages = parsed_.catalog.storages().size();
  info.file_bytes = state_.file.size();
  info.pickle_bytes = parsed_.tree->pickle().size();
  if (!options_.log) return;
  options_.log("opened: " + std::to_string(info.tensors) + " tensors in " +
               std::to_string(info.storages) + " storages, offsets " +
               std::string(to_string(stats_.strategy)) + ", " + std::to_string(stats_.reads) +
               (stats_.reads == 1 ? " read of " : " reads of ") +
               std::to_string(stats_.bytes_read) + " bytes, " +
               std::to_string(stats_.total.count() / 1000) + " us");
}

}  // namespace weightmap
