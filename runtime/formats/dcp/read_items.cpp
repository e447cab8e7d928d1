#include "runtime/formats/dcp/read_items.hpp"

#include <algorithm>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/row_major.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/dcp/boxes.hpp"
#include "runtime/formats/dcp/item_pattern.hpp"
#include "runtime/formats/dcp/item_source.hpp"
#include "runtime/formats/format/zip_directory.hpp"
#include "runtime/formats/torch/parse.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::dcp {

// The tensor of an item, whose place is one in the item.
struct ItemTensor {
  DType dtype;
  std::vector<std::int64_t> sizes;
  PlacedChunk placed;  // without offsets and sizes
};

// An item that was parsed.
struct ProvenItem {
  ItemTensor tensor;
  std::optional<ItemPattern> pattern;  // if others may be like it
};

namespace {

using ProvenItemPtr = std::unique_ptr<const ProvenItem>;

// Upper bounds for an archive of one tensor.
constexpr std::uint64_t most_pickle_bytes = 65536;
constexpr std::uint64_t most_directory_bytes = 65536;
// The number of items that a thread reads at a time.
constexpr std::size_t items_together = 128;
// Where nothing lies: the storage of a tensor whose place is not known is as long as any, and ends
// there.
constexpr std::uint64_t no_place = std::uint64_t{1} << 62;

// Items of one size may be of several shapes.
std::uint64_t hash_of(const Chunk& chunk) noexcept {
  std::uint64_t hash = chunk.item.length;
  for (const std::int64_t size : chunk.sizes) hash = 31 * hash + static_cast<std::uint64_t>(size);
  return hash;
}

tl::unexpected<Error> about_item(const ItemRead& read, Error error) {
  error.message.insert(0, "tensor " + bytes::quote(read.tensor->name) + ", chunk at " +
                              bytes::listed(read.chunk->offsets) + ": ");
  if (error.code == ErrorCode::not_a_checkpoint)
    error.code = ErrorCode::corrupt;  // relative to the folder
  std::uint64_t& at = error.file_offset;
  at = at == Error::no_offset ? read.chunk->item.offset : at + read.chunk->item.offset;
  return tl::unexpected<Error>(std::move(error));
}

bool is_same_item(const ItemRead& one, const ItemRead& other) {
  const Item& a = one.chunk->item;
  const Item& b = other.chunk->item;
  return a.file == b.file && a.offset == b.offset && a.length == b.length;
}

Result<ItemTensor> tensor_of(const format::Parsed& parsed) {
  if (!parsed.compressed.empty())
    return failure(ErrorCode::unsupported, "its bytes are compressed");
  if (parsed.facts.reserved && !parsed.facts.reserved->is_sealed)
    return failure(ErrorCode::unsupported, "its bytes are reserved, and not filled in yet");
  const catalog::Catalog& found = parsed.catalog;
  if (found.size() != 1 || !parsed.composed.empty())
    return failure(ErrorCode::corrupt,
                   "it has " + std::to_string(found.size()) + " tensors, and is to be one");
  const catalog::Entry& entry = found[0];
  if (!found.name(entry).empty())
    return failure(ErrorCode::corrupt, "it has something with a tensor in it, " +
                                           bytes::quote(found.name(entry)) +
                                           ", and is to be a tensor itself");
  const catalog::StorageEntry& storage = found.storages()[entry.storage];
  const std::int64_t* const sizes = found.dims(entry);
  const std::int64_t* const strides = sizes + entry.rank;
  constexpr unsigned kept =
      TensorView::foreign_order | TensorView::conjugate | TensorView::negative;
  return ItemTensor{entry.dtype,
                    {sizes, strides},
                    {{},
                     {},
                     {strides, strides + entry.rank},
                     storage.position,
                     storage.nbytes,
                     entry.storage_offset,
                     storage.crc32,
                     0,
                     static_cast<std::uint8_t>(entry.flags & kept)}};
}

// Fails where the item differs from the metadata.
Result<void> take(const ItemTensor& tensor, std::uint32_t crc32, const DataFile& file,
                  ItemRead& read) {
  if (tensor.dtype != read.tensor->dtype)
    return failure(ErrorCode::corrupt,
                   "it has elements of " + std::string(to_string(tensor.dtype)) +
                       ", and the metadata says " + std::string(to_string(read.tensor->dtype)));
  if (!std::ranges::equal(tensor.sizes, read.chunk->sizes))
    return failure(ErrorCode::corrupt, "it has the shape " + bytes::listed(tensor.sizes) +
                                           ", and the metadata says " +
                                           bytes::listed(read.chunk->sizes));
  read.placed = tensor.placed;
  read.placed.offsets = read.chunk->offsets;
  read.placed.sizes = read.chunk->sizes;
  read.placed.storage_position += file.base + read.chunk->item.offset;
  read.placed.crc32 = crc32;
  read.placed.source = file.number;
  return {};
}

Result<ProvenItemPtr> parse_item(const ItemSource& source, const OpenOptions& options,
                                 OpenStats& stats) {
  std::pmr::monotonic_buffer_resource memory(16384);
  format::Input input(source, 0, source.size(), memory);
  input.cache.emplace(source, memory, tail_bytes);
  std::optional<ItemPattern> pattern;
  Result<zip::Directory> directory = format::read_directory(source, *input.cache, options.limits);
  if (directory) {  // otherwise the parser says what is wrong
    pattern = ItemPattern::of(source.ends(), *directory);
    input.directory = std::move(*directory);
  }
  OpenStats of_item;
  TRY_ASSIGN(const format::Parsed parsed, torch::parse_archive(input, options, of_item, memory));
  stats.verify_reads += of_item.verify_reads;
  stats.verify_bytes_read += of_item.verify_bytes_read;
  TRY_ASSIGN(ItemTensor tensor, tensor_of(parsed));
  if (source.was_read_between_ends() ||
      (pattern && pattern->storage_position() != tensor.placed.storage_position))
    pattern.reset();
  return std::make_unique<const ProvenItem>(ProvenItem{std::move(tensor), std::move(pattern)});
}

// All of `reads` refer to the same item.
Result<void> prove_item(std::span<ItemRead> reads, const PartsOfFile& parts, const DataFile& file,
                        const OpenOptions& options, OpenStats& stats, ProvenItems& proven) {
  const Chunk& chunk = *reads.front().chunk;
  const ItemSource source(parts, chunk.item);
  const ItemEnds ends = source.ends();
  const ProvenItem* item = proven.find(chunk, ends);
  ProvenItemPtr own;
  if (item == nullptr) {
    Result<ProvenItemPtr> parsed = parse_item(source, options, stats);
    if (!parsed) return about_item(reads.front(), std::move(parsed.error()));
    own = std::move(*parsed);
    item = own.get();
  }
  const std::uint32_t crc32 =
      item->pattern ? item->pattern->crc32(ends) : item->tensor.placed.crc32;
  for (ItemRead& read : reads)
    if (Result<void> taken = take(item->tensor, crc32, file, read); !taken)
      return about_item(read, std::move(taken.error()));
  if (own != nullptr) proven.keep(chunk, std::move(own));
  return {};
}

// Reads items of one file, in file order.
Result<void> read_some(std::span<ItemRead> items, const DataFile& file, const OpenOptions& options,
                       OpenStats& stats, ProvenItems& proven) {
  PartsOfFile parts(*file.file, stats);
  for (const ItemRead& read : items) {
    if (Result<void> fits = check_place(read.chunk->item, *file.file); !fits)
      return about_item(read, std::move(fits.error()));
    parts.want_ends(read.chunk->item);
  }
  TRY(parts.announce());
  for (auto begin = items.begin(); begin != items.end();) {
    const auto end = std::find_if_not(
        begin, items.end(), [&](const ItemRead& read) { return is_same_item(*begin, read); });
    TRY(parts.read_ends(begin->chunk->item));
    TRY(prove_item({begin, end}, parts, file, options, stats, proven));
    begin = end;
  }
  return {};
}

bool has_order(const ItemRead& item) noexcept { return swap_unit(item.tensor->dtype) > 1; }

bool is_foreign(const ItemRead& item) noexcept {
  return (item.placed.flags & TensorView::foreign_order) != 0;
}

Result<void> about_data_file(Result<void> result, const DataFile& file) {
  if (!result && result.error().file.empty()) result.error().file = file.shown_name;
  return result;
}

}  // namespace

OpenOptions for_one_item(OpenOptions options) {
  Limits& limits = options.limits;
  limits.pickle_bytes = std::min(limits.pickle_bytes, most_pickle_bytes);
  limits.directory_bytes = std::min(limits.directory_bytes, most_directory_bytes);
  return options;
}

ProvenItems::~ProvenItems() {
  for (const std::atomic<const ProvenItem*>& item : items_) delete item.load();
}

const ProvenItem* ProvenItems::find(const Chunk& chunk, const ItemEnds& ends) const noexcept {
  const std::uint64_t first = hash_of(chunk);
  for (std::uint64_t at = first; at < first + most_probes; ++at) {
    const ProvenItem* const item = items_[at % slots].load(std::memory_order_acquire);
    if (item == nullptr) return nullptr;
    if (item->pattern->matches(ends)) return item;
  }
  return nullptr;
}

void ProvenItems::keep(const Chunk& chunk, std::unique_ptr<const ProvenItem> item) noexcept {
  if (!item->pattern) return;
  const std::uint64_t first = hash_of(chunk);
  for (std::uint64_t at = first; at < first + most_probes; ++at) {
    const ProvenItem* none = nullptr;
    if (!items_[at % slots].compare_exchange_strong(none, item.get(), std::memory_order_acq_rel))
      continue;
    static_cast<void>(item.release());
    return;
  }
}

Result<void> read_item(ItemRead& item, std::span<const DataFile> files, const OpenOptions& options,
                       OpenStats& stats, ProvenItems& proven) {
  const DataFile& file = files[item.chunk->item.file];
  return about_data_file(read_some({&item, 1}, file, options, stats, proven), file);
}

bool has_foreign_order(std::span<const ItemRead> items) {
  const auto first = std::ranges::find_if(items, has_order);
  return first != items.end() && is_foreign(*first);
}

bool find_foreign_order(std::span<const ItemRead> items, std::span<const DataFile> files,
                        const OpenOptions& options, OpenStats& stats) {
  const OpenOptions options_of_item = for_one_item(options);
  ProvenItems proven;
  for (ItemRead item : items)
    if (has_order(item) && read_item(item, files, options_of_item, stats, proven))
      return is_foreign(item);
  return false;
}

Result<void> expect_order(std::span<const ItemRead> items, std::span<const DataFile> files,
                          bool expected) {
  const auto other = std::ranges::find_if(items, [expected](const ItemRead& item) {
    return has_order(item) && is_foreign(item) != expected;
  });
  if (other == items.end()) return {};
  Error error{ErrorCode::unsupported,
              "its elements are in the other byte order than those of other items",
              Error::no_offset,
              {}};
  return about_data_file(about_item(*other, std::move(error)), files[other->chunk->item.file]);
}

Result<void> expect_item(ItemRead& read, std::span<const DataFile> files) {
  const Chunk& chunk = *read.chunk;
  const DataFile& file = files[chunk.item.file];
  if (Result<void> fits = check_place(chunk.item, *file.file); !fits)
    return about_data_file(about_item(read, std::move(fits.error())), file);
  PlacedChunk& placed = read.placed;
  placed = {chunk.offsets,
            chunk.sizes,
            std::vector<std::int64_t>(chunk.sizes.size()),
            no_place,
            no_place,
            0,
            0,
            file.number,
            0};
  static_cast<void>(bytes::row_major_strides(chunk.sizes, placed.strides));
  return {};
}

Result<void> read_items(std::span<ItemRead> items, std::span<const DataFile> files,
                        const OpenOptions& options, OpenStats& stats) {
  std::ranges::sort(items, {}, [](const ItemRead& read) {
    const Item& item = read.chunk->item;
    return std::tuple(item.file, item.offset, item.length);
  });
  std::vector<std::span<ItemRead>> parts;
  for (std::size_t begin = 0; begin < items.size();) {
    std::size_t end = begin + 1;
    while (end < items.size() && (is_same_item(items[end], items[end - 1]) ||
                                  (end - begin < items_together &&
                                   items[end].chunk->item.file == items[begin].chunk->item.file)))
      ++end;
    parts.push_back(items.subspan(begin, end - begin));
    begin = end;
  }
  const OpenOptions options_of_item = for_one_item(options);
  ProvenItems proven;
  std::mutex counting;
  return parallel_for(parts.size(), [&](std::size_t number) -> Result<void> {
    OpenStats of_part;
    const std::span<ItemRead> part = parts[number];
    const DataFile& file = files[part.front().chunk->item.file];
    Result<void> read =
        about_data_file(read_some(part, file, options_of_item, of_part, proven), file);
    const std::scoped_lock lock(counting);
    stats.reads += of_part.reads;
    stats.bytes_read += of_part.bytes_read;
    stats.verify_reads += of_part.verify_reads;
    stats.verify_bytes_read += of_part.verify_bytes_read;
    return read;
  });
}

}  // namespace weightmap::dcp
