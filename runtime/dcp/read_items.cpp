#include "runtime/dcp/read_items.hpp"

#include <algorithm>
#include <cstring>
#include <memory_resource>
#include <mutex>
#include <tuple>
#include <utility>

#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/bytes/buffer.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/dcp/boxes.hpp"
#include "runtime/torch/parse_archive.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::dcp {
namespace {

// The size of the reads at both ends of an item: torch's head has about 704 bytes, its tail 873.
constexpr std::uint64_t end_bytes = 1024;
// Reading a gap of this size costs less than another read.
constexpr std::uint64_t close_bytes = 32768;
constexpr std::uint64_t most_read = std::uint64_t{1} << 20;
// Upper bounds for an archive of one tensor.
constexpr std::uint64_t most_pickle_bytes = 65536;
constexpr std::uint64_t most_directory_bytes = 65536;
// The number of items that a thread reads at a time.
constexpr std::size_t items_together = 128;

// Parts of a file that were read ahead; the file serves the rest.
class PartsOfFile {
 public:
  PartsOfFile(const bytes::ByteSource& file, OpenStats& stats) : file_(file), stats_(stats) {}

  // Ranges come in file order.
  void want(std::uint64_t begin, std::uint64_t end) {
    if (!wanted_.empty() && begin <= wanted_.back().end + close_bytes &&
        std::max(end, wanted_.back().end) - wanted_.back().begin <= most_read)
      wanted_.back().end = std::max(end, wanted_.back().end);
    else
      wanted_.push_back({begin, end, {}});
  }
  Result<void> read_wanted() {
    for (Part& part : wanted_) {
      part.bytes.resize(part.end - part.begin);
      TRY(count_read(part.begin, part.bytes));
    }
    return {};
  }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const {
    const auto behind = std::ranges::upper_bound(wanted_, offset, {}, &Part::begin);
    if (behind != wanted_.begin()) {
      const Part& part = *std::prev(behind);
      if (bytes::contains(part.bytes.size(), offset - part.begin, out.size())) {
        std::copy_n(part.bytes.begin() + static_cast<std::ptrdiff_t>(offset - part.begin),
                    out.size(), out.begin());
        return {};
      }
    }
    return count_read(offset, out);
  }

 private:
  struct Part {
    std::uint64_t begin;
    std::uint64_t end;
    std::vector<std::byte> bytes;
  };

  Result<void> count_read(std::uint64_t offset, std::span<std::byte> out) const {
    ++stats_.reads;
    stats_.bytes_read += out.size();
    return file_.read(offset, out);
  }

  const bytes::ByteSource& file_;
  OpenStats& stats_;
  std::vector<Part> wanted_;
};

// An item as a file of its own, with its own offsets in errors.
class ItemSource final : public bytes::ByteSource {
 public:
  ItemSource(const PartsOfFile& file, const Item& item) noexcept : file_(file), item_(item) {}
  std::uint64_t size() const noexcept override { return item_.length; }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (!bytes::contains(item_.length, offset, out.size()))
      return bytes::leaves_source(*this, offset, out.size());
    return file_.read(item_.offset + offset, out);
  }

 private:
  const PartsOfFile& file_;
  const Item& item_;
};

tl::unexpected<Error> about_item(const ItemRead& read, Error error) {
  error.message.insert(0, "tensor " + bytes::quote(read.tensor->name) + ", chunk at " +
                              to_text(read.chunk->offsets) + ": ");
  if (error.code == ErrorCode::not_a_checkpoint)
    error.code = ErrorCode::corrupt;  // relative to the folder
  std::uint64_t& at = error.file_offset;
  at = at == Error::no_offset ? read.chunk->item.offset : at + read.chunk->item.offset;
  return tl::unexpected<Error>(std::move(error));
}

OpenOptions for_one_tensor(OpenOptions options) {
  Limits& limits = options.limits;
  limits.pickle_bytes = std::min(limits.pickle_bytes, most_pickle_bytes);
  limits.directory_bytes = std::min(limits.directory_bytes, most_directory_bytes);
  return options;
}

// Describes how the item differs from the metadata.
std::string difference(const ItemRead& read, const format::Parsed& parsed) {
  const catalog::Catalog& found = parsed.catalog;
  if (found.size() != 1 || !parsed.composed.empty())
    return "it has " + std::to_string(found.size()) + " tensors, and is to be one";
  const catalog::Entry& entry = found[0];
  if (!found.name(entry).empty())
    return "it has something with a tensor in it, " + bytes::quote(found.name(entry)) +
           ", and is to be a tensor itself";
  if (entry.dtype != read.tensor->dtype)
    return "it has elements of " + std::string(to_string(entry.dtype)) +
           ", and the metadata says " + std::string(to_string(read.tensor->dtype));
  const std::span<const std::int64_t> sizes(found.dims(entry), entry.rank);
  if (!std::ranges::equal(sizes, read.chunk->sizes))
    return "it has the shape " + to_text(sizes) + ", and the metadata says " +
           to_text(read.chunk->sizes);
  return {};
}

bool is_same_item(const ItemRead& one, const ItemRead& other) {
  const Item& a = one.chunk->item;
  const Item& b = other.chunk->item;
  return a.file == b.file && a.offset == b.offset && a.length == b.length;
}

Result<void> take_from(const format::Parsed& parsed, ItemRead& read) {
  if (!parsed.compressed.empty())
    return failure(ErrorCode::unsupported, "its bytes are compressed");
  if (parsed.facts.reserved && !parsed.facts.reserved->is_sealed)
    return failure(ErrorCode::unsupported, "its bytes are reserved, and not filled in yet");
  if (const std::string what = difference(read, parsed); !what.empty())
    return failure(ErrorCode::corrupt, what);
  const catalog::Entry& entry = parsed.catalog[0];
  const catalog::StorageEntry& storage = parsed.catalog.storages()[entry.storage];
  const std::int64_t* const dims = parsed.catalog.dims(entry);
  read.strides.assign(dims + entry.rank, dims + std::size_t{2} * entry.rank);
  read.storage_position = read.chunk->item.offset + storage.position;
  read.storage_bytes = storage.nbytes;
  read.storage_offset = entry.storage_offset;
  read.crc32 = storage.crc32;
  read.flags =
      entry.flags & (TensorView::foreign_order | TensorView::conjugate | TensorView::negative);
  return {};
}

// All of `reads` refer to the same item.
Result<void> parse_item(std::span<ItemRead> reads, const PartsOfFile& file,
                        const OpenOptions& options, OpenStats& stats) {
  const ItemSource source(file, reads.front().chunk->item);
  std::pmr::monotonic_buffer_resource memory(16384);
  format::Input input(source, 0, source.size(), memory);
  input.cache.emplace(source, memory, end_bytes);
  OpenStats of_item;
  Result<format::Parsed> parsed = torch::parse_archive(input, options, of_item, memory);
  if (!parsed) return about_item(reads.front(), std::move(parsed.error()));
  for (ItemRead& read : reads)
    if (Result<void> taken = take_from(*parsed, read); !taken)
      return about_item(read, std::move(taken.error()));
  stats.verify_reads += of_item.verify_reads;
  stats.verify_bytes_read += of_item.verify_bytes_read;
  return {};
}

Result<void> check_place(const ItemRead& read, const bytes::ByteSource& file) {
  const Item& item = read.chunk->item;
  if (item.length == 0) return failure(ErrorCode::corrupt, "it has no bytes");
  if (bytes::contains(file.size(), item.offset, item.length)) return {};
  return failure(ErrorCode::corrupt, "its " + std::to_string(item.length) +
                                         " bytes leave the file of " + std::to_string(file.size()) +
                                         "; it is truncated, or from another save");
}

// Reads items of one file, in file order.
Result<void> read_some(std::span<ItemRead> items, const bytes::ByteSource& file,
                       const OpenOptions& options, OpenStats& stats) {
  PartsOfFile parts(file, stats);
  for (const ItemRead& read : items) {
    if (Result<void> fits = check_place(read, file); !fits)
      return about_item(read, std::move(fits.error()));
    const Item& item = read.chunk->item;
    const std::uint64_t part = std::min(end_bytes, item.length);
    parts.want(item.offset, item.offset + part);
    parts.want(item.offset + item.length - part, item.offset + item.length);
  }
  TRY(parts.read_wanted());
  for (auto begin = items.begin(); begin != items.end();) {
    const auto end = std::find_if_not(
        begin, items.end(), [&](const ItemRead& read) { return is_same_item(*begin, read); });
    TRY(parse_item({begin, end}, parts, options, stats));
    begin = end;
  }
  return {};
}

}  // namespace

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
  const OpenOptions options_of_item = for_one_tensor(options);
  std::mutex counting;
  return parallel_for(parts.size(), [&](std::size_t number) -> Result<void> {
    OpenStats of_part;
    const std::span<ItemRead> part = parts[number];
    const DataFile& file = files[part.front().chunk->item.file];
    Result<void> read = read_some(part, *file.file, options_of_item, of_part);
    if (!read && read.error().file.empty()) read.error().file = file.shown_name;
    const std::scoped_lock lock(counting);
    stats.reads += of_part.reads;
    stats.bytes_read += of_part.bytes_read;
    stats.verify_reads += of_part.verify_reads;
    stats.verify_bytes_read += of_part.verify_bytes_read;
    return read;
  });
}

}  // namespace weightmap::dcp
