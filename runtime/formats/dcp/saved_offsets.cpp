#include "runtime/formats/dcp/saved_offsets.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/json/json_tree.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/builder.hpp"
#include "runtime/formats/dcp/assemble.hpp"
#include "runtime/formats/dcp/boxes.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/value.hpp"

namespace weightmap::dcp {
namespace {

std::optional<std::string_view> info_of(const format::Parsed& shard) {
  const std::optional<Value> info =
      Value(shard.tree.get(), shard.tree->root()).find("DCP_SHARDING_INFO");
  return info ? info->string() : std::nullopt;
}

using Offsets = std::unordered_map<std::string_view, std::vector<std::int64_t>>;

Result<std::vector<std::int64_t>> offsets_of(std::string_view name, const Value& info) {
  std::vector<std::int64_t> offsets;
  const Value saved = info.find("saved_offsets").value_or(Value());
  bool is_good = saved.kind() == Value::Kind::list;
  for (const Value& element : saved.elements()) {
    const std::optional<std::int64_t> offset = element.integer();
    is_good = is_good && offset && *offset >= 0;
    offsets.push_back(offset.value_or(0));
  }
  if (is_good) return offsets;
  return failure(ErrorCode::corrupt,
                 "DCP_SHARDING_INFO has no list of saved_offsets for tensor " + bytes::quote(name));
}

// The names point into the tree.
struct SavedOffsets {
  std::unique_ptr<value::Tree> tree;
  Offsets by_name;

  static Result<SavedOffsets> read(std::string_view text, const Limits& limits,
                                   std::pmr::memory_resource& memory) {
    value::Builder build(memory, {limits.base_memory + 5 * text.size(), limits.depth});
    Result<value::Cell> root = json::add_document(build, text);
    if (!root) {
      root.error().message.insert(0, "DCP_SHARDING_INFO: ");
      root.error().file_offset = Error::no_offset;  // its offset refers to that text
      return tl::unexpected<Error>(std::move(root.error()));
    }
    SavedOffsets saved;
    TRY_ASSIGN(saved.tree, std::move(build).finish(*root));
    for (const auto& [name, info] : Value(saved.tree.get(), saved.tree->root()).items())
      if (name.string()) {
        TRY_ASSIGN(saved.by_name[*name.string()], offsets_of(*name.string(), info));
      }
    return saved;
  }
};

class Joining {
 public:
  Joining(const OpenOptions& options, std::pmr::memory_resource& memory)
      : options_(options), memory_(memory) {}

  Result<void> add(const SavedShard& shard) {
    TRY_ASSIGN(SavedOffsets saved,
               SavedOffsets::read(*info_of(*shard.parsed), options_.limits, memory_));
    saved_.push_back(std::move(saved));
    header_bytes_ += shard.parsed->facts.pickle_bytes;
    for (const catalog::Entry& entry : shard.parsed->catalog.entries())
      TRY(add(shard, entry, saved_.back().by_name));
    return {};
  }

  Result<void> finish(format::Parsed& whole) && {
    return assemble(tensors_, header_bytes_, options_, memory_, whole);
  }

 private:
  Result<void> add(const SavedShard& shard, const catalog::Entry& entry, const Offsets& saved) {
    const catalog::Catalog& catalog = shard.parsed->catalog;
    const std::string_view name = catalog.name(entry);
    const auto found = saved.find(name);
    PlacedChunk chunk = chunk_of(shard, entry);
    static constexpr std::array<std::int64_t, std::numeric_limits<std::uint8_t>::max()> origin{};
    chunk.offsets = found == saved.end() ? std::span(origin).first(entry.rank) : found->second;
    const auto [at, is_new] = numbers_.try_emplace(name, tensors_.size());
    if (is_new) tensors_.push_back({name, {}, entry.dtype, false, {}, {}});
    Whole& tensor = tensors_[at->second];
    if (is_new) tensor.sizes.assign(entry.rank, 0);
    if (tensor.dtype != entry.dtype || tensor.sizes.size() != entry.rank ||
        chunk.offsets.size() != entry.rank)
      return failure(ErrorCode::corrupt, "tensor " + bytes::quote(name) +
                                             " has parts of different dtypes or ranks, one of " +
                                             std::string(to_string(entry.dtype)) + " at " +
                                             bytes::listed(chunk.offsets) + " of sizes " +
                                             bytes::listed(chunk.sizes));
    for (std::size_t dim = 0; dim < entry.rank; ++dim) {
      std::int64_t end;
      if (!bytes::checked_add(chunk.offsets[dim], chunk.sizes[dim], &end))
        return failure(ErrorCode::corrupt, "tensor " + bytes::quote(name) + " has a part at " +
                                               bytes::listed(chunk.offsets) + ", beyond 63 bits");
      tensor.sizes[dim] = std::max(tensor.sizes[dim], end);
    }
    // Several ranks may have written a replicated part.
    if (boxes_.emplace(at->second, numbers(chunk.offsets), numbers(chunk.sizes)).second)
      tensor.chunks.push_back(std::move(chunk));
    return {};
  }

  static std::vector<std::int64_t> numbers(std::span<const std::int64_t> of) {
    return {of.begin(), of.end()};
  }
  static PlacedChunk chunk_of(const SavedShard& shard, const catalog::Entry& entry) {
    const catalog::Catalog& catalog = shard.parsed->catalog;
    const std::int64_t* const dims = catalog.dims(entry);
    const catalog::StorageEntry& storage = catalog.storages()[entry.storage];
    return {{},
            {dims, entry.rank},
            {dims + entry.rank, dims + std::size_t{2} * entry.rank},
            shard.base + storage.position,
            storage.nbytes,
            entry.storage_offset,
            storage.crc32,
            shard.source,
            static_cast<std::uint8_t>(entry.flags & TensorView::foreign_order)};
  }

  const OpenOptions& options_;
  std::pmr::memory_resource& memory_;
  std::uint64_t header_bytes_ = 0;   // of all shards
  std::vector<SavedOffsets> saved_;  // of all shards; the chunks' offsets are theirs
  std::vector<Whole> tensors_;       // their names point into the shards' catalogs
  std::unordered_map<std::string_view, std::size_t> numbers_;
  // All pieces: the number of the tensor, offsets and sizes.
  std::set<std::tuple<std::size_t, std::vector<std::int64_t>, std::vector<std::int64_t>>> boxes_;
};

}  // namespace

bool has_saved_offsets(const format::Parsed& shard) {
  return shard.facts.format == Format::safetensors && info_of(shard).has_value();
}

Result<void> check_has_no_parts(const format::Parsed& file, const OpenOptions& options,
                                std::pmr::memory_resource& memory) {
  if (!has_saved_offsets(file)) return {};
  TRY_ASSIGN(const SavedOffsets saved, SavedOffsets::read(*info_of(file), options.limits, memory));
  for (const catalog::Entry& entry : file.catalog.entries()) {
    const std::string_view name = file.catalog.name(entry);
    const auto found = saved.by_name.find(name);
    if (found == saved.by_name.end() ||
        std::ranges::count(found->second, 0) == std::ssize(found->second))
      continue;
    return failure(
        ErrorCode::invalid_argument,
        "is the file of one rank: its DCP_SHARDING_INFO says that its part of tensor " +
            bytes::quote(name) + " begins at " + bytes::listed(found->second) +
            " of the whole; copy the files of all ranks into one folder, from a store by its "
            "own program, and give that folder instead");
  }
  return {};
}

Result<void> join_shards(std::span<const SavedShard> shards, const OpenOptions& options,
                         std::pmr::memory_resource& memory, format::Parsed& whole) {
  Joining joining(options, memory);
  for (const SavedShard& shard : shards)
    if (Result<void> added = joining.add(shard); !added) {
      if (added.error().file.empty()) added.error().file = shard.shown_name;
      return added;
    }
  return std::move(joining).finish(whole);
}

}  // namespace weightmap::dcp
