#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/pickle/parse.hpp"
#include "runtime/base/pickle/pickle_end.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/torch/globals.hpp"
#include "runtime/formats/torch/legacy_views.hpp"
#include "runtime/formats/torch/make_catalog.hpp"
#include "runtime/formats/torch/names.hpp"
#include "runtime/formats/torch/parse.hpp"
#include "runtime/formats/torch/repeated_keys.hpp"
#include "runtime/formats/torch/tree_walk.hpp"

namespace weightmap::torch {
namespace {

using format::Input;
using format::Parsed;
using Extents = std::pmr::vector<zip::StorageExtent>;

constexpr std::size_t count_bytes = 8;  // in front of each storage

// A pickle of the stream.
struct Part {
  std::unique_ptr<value::Tree> tree;
  std::uint64_t offset;
};

class LegacyParser {
 public:
  LegacyParser(Input& input, const OpenOptions& options, OpenStats& stats,
               std::pmr::memory_resource& memory)
      : input_(input), options_(options), stats_(stats), memory_(memory), parsed_(memory) {}

  Result<Parsed> run() && {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point began = Clock::now();
    TRY(read_head());
    TRY_ASSIGN(Part object, read_pickle("the object", true, memory_));
    TRY_ASSIGN(const Part keys, read_plain("the list of keys"));
    const Clock::time_point read = Clock::now();
    stats_.pickle = read - began;
    TRY(place_tensors(object, keys));
    input_.release(stats_);
    stats_.catalog = Clock::now() - read;
    parsed_.tree = std::move(object.tree);
    describe();
    return std::move(parsed_);
  }

 private:
  Result<Part> read_pickle(std::string_view what, bool has_modules,
                           std::pmr::memory_resource& memory);
  Result<Part> read_plain(std::string_view what);
  Result<void> read_head();
  Result<void> place_tensors(const Part& object, const Part& keys);
  Result<void> place_tensors(const Part& object, const Part& keys, std::uint32_t first_mark);
  Result<Extents> locate(const TensorTable& table, const Part& keys);
  Result<void> announce_counts(std::span<const zip::StorageRequest> storages,
                               std::span<const std::uint32_t> order) const;
  Result<void> place(const zip::StorageRequest& storage, zip::StorageExtent& extent);
  Result<std::uint64_t> read_count();
  void describe();

  Input& input_;
  const OpenOptions& options_;
  OpenStats& stats_;
  std::pmr::memory_resource& memory_;
  Parsed parsed_;
  std::uint64_t at_ = 0;  // end of what has been read
  std::array<std::byte, 4096> ahead_;
  std::uint64_t ahead_offset_ = 0;
  std::size_t ahead_size_ = 0;
};

tl::unexpected<Error> in_part(std::string_view what, Error error) {
  error.message = std::string(what) + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

// Parses the next pickle of the stream and calls nothing.
Result<Part> LegacyParser::read_pickle(std::string_view what, bool has_modules,
                                       std::pmr::memory_resource& memory) {
  const std::uint64_t offset = at_;
  const Limits& limits = options_.limits;
  Result<std::uint64_t> end = pickle::find_end(*input_.cache, offset, limits.pickle_bytes);
  if (!end) return in_part(what, std::move(end.error()));
  bytes::Buffer content(static_cast<std::size_t>(*end - offset), memory);
  const std::span<const std::byte> pickle = std::as_const(content).span();
  TRY(input_.cache->copy(offset, content.span()));
  Result<std::unique_ptr<value::Tree>> tree =
      pickle::parse(std::move(content), pickle, offset,
                    {limits.base_memory + 5 * pickle.size(), limits.depth, has_modules}, memory);
  if (!tree) return in_part(what, std::move(tree.error()));
  at_ = *end;
  return Part{std::move(*tree), offset};
}

// Parses a pickle that must not name any global.
Result<Part> LegacyParser::read_plain(std::string_view what) {
  TRY_ASSIGN(Part part, read_pickle(what, false, *std::pmr::new_delete_resource()));
  if (part.tree->globals().empty()) return part;
  const value::Global& global = *part.tree->globals().front();
  return failure(ErrorCode::unsafe_pickle,
                 std::string(what) + " names " + qualified_name(global.module, global.name) +
                     ", where nothing is to be called; nothing was run",
                 part.offset + global.position);
}

// The first pickle is what identified the file. Like torch, this ignores the facts about the
// machine that wrote it: elements are always little-endian.
Result<void> LegacyParser::read_head() {
  constexpr std::int64_t protocol = 1001;
  TRY(read_plain("the magic number"));
  TRY_ASSIGN(const Part version, read_plain("the version"));
  const Value found(version.tree.get(), version.tree->root());
  if (found.integer() != protocol)
    return failure(ErrorCode::unsupported,
                   "its version is " +
                       (found.integer() ? std::to_string(*found.integer()) : "not a number") +
                       ", the only one of a legacy stream is 1001",
                   version.offset);
  TRY(read_plain("the facts of the machine"));
  return {};
}

// The last of two items with one key counts, as in Python.
Result<void> LegacyParser::place_tensors(const Part& object, const Part& keys) {
  const std::uint64_t behind_keys = at_;
  Result<void> placed = place_tensors(object, keys, 0);
  if (placed || !is_key_twice(placed.error())) return placed;
  TRY_ASSIGN(parsed_.facts.duplicate_keys,
             drop_repeated_keys(*object.tree, {object.offset, options_.limits}));
  at_ = behind_keys;
  stats_.storages_by_header = 0;
  return place_tensors(object, keys, mark_after_repeated_keys);
}

Result<void> LegacyParser::place_tensors(const Part& object, const Part& keys,
                                         std::uint32_t first_mark) {
  // Packed calls have ids of five fields, which torch refuses here.
  if (object.tree->packed_count() != 0)
    return failure(ErrorCode::corrupt,
                   "the object: a tensor's storage is a persistent id of five fields, expected six",
                   object.offset);
  Result<bool> all_safe = check_globals(*object.tree, object.offset, options_);
  if (!all_safe) return in_part("the object", std::move(all_safe.error()));
  parsed_.facts.names_torch_safe_only = *all_safe;
  std::pmr::monotonic_buffer_resource tables(&memory_);
  LegacyViews views;
  Result<TensorTable> tensors =
      read_tensors(*object.tree, {object.offset, options_.limits, nullptr, Arrays::none, &views},
                   tables, first_mark);
  if (!tensors) return in_part("the object", std::move(tensors.error()));
  TensorTable table = std::move(*tensors);
  TRY(views.check_keys(table.storages, object.offset));
  TRY_ASSIGN(const Extents extents, locate(table, keys));
  stats_.cache_hits = table.storages.cache_hits();
  constexpr bool is_foreign = std::endian::native == std::endian::big;
  TRY_ASSIGN(parsed_.catalog, make_catalog({*object.tree, table, extents, is_foreign, object.offset,
                                            input_.copies_base},
                                           memory_));
  keep_nodes(table, parsed_.nodes);
  parsed_.composed = std::move(table.composed);
  return {};
}

// Locates the storages in the order of the list, which must name every storage once. torch leaves a
// storage uninitialised that the list lacks.
Result<Extents> LegacyParser::locate(const TensorTable& table, const Part& keys) {
  const std::span<const zip::StorageRequest> storages = table.storages.storages();
  std::vector<std::uint32_t> by_key(storages.size());
  for (std::uint32_t i = 0; i < by_key.size(); ++i) by_key[i] = i;
  const auto key_of = [&](std::uint32_t number) { return storages[number].key; };
  std::ranges::sort(by_key, {}, key_of);
  Extents extents(storages.size(), {0, 0, 0, 0}, &memory_);
  std::vector<bool> is_placed(storages.size());
  std::vector<std::uint32_t> order;

  const Value list(keys.tree.get(), keys.tree->root());
  if (list.kind() != Value::Kind::list)
    return failure(ErrorCode::corrupt, "the keys of the storages are not a list", keys.offset);
  for (const Value& item : list.elements()) {
    const std::optional<std::string_view> key = item.string();
    if (!key) return failure(ErrorCode::corrupt, "a key of a storage is not a text", keys.offset);
    const auto known = std::ranges::lower_bound(by_key, *key, {}, key_of);
    if (known == by_key.end() || key_of(*known) != *key)
      return failure(ErrorCode::corrupt,
                     "the list of keys has storage " + bytes::quote(*key) +
                         ", which the object does not refer to",
                     keys.offset);
    if (is_placed[*known])
      return failure(ErrorCode::corrupt,
                     "the list of keys has storage " + bytes::quote(*key) + " twice", keys.offset);
    is_placed[*known] = true;
    order.push_back(*known);
  }
  TRY(announce_counts(storages, order));
  for (const std::uint32_t number : order) TRY(place(storages[number], extents[number]));
  const auto missing = std::ranges::find(is_placed, false);
  if (missing == is_placed.end()) return extents;
  const auto number = static_cast<std::uint32_t>(missing - is_placed.begin());
  return failure(ErrorCode::corrupt,
                 "the object refers to storage " + bytes::quote(key_of(number)) +
                     ", which the list of keys does not have",
                 keys.offset);
}

// The object says where the counts lie, if they are what they are to be.
Result<void> LegacyParser::announce_counts(std::span<const zip::StorageRequest> storages,
                                           std::span<const std::uint32_t> order) const {
  const std::uint64_t size = input_.file->size();
  std::vector<ByteRange> counts;
  std::uint64_t at = at_;
  for (const std::uint32_t number : order) {
    if (!bytes::contains(size, at, count_bytes)) break;
    counts.push_back({at, std::min<std::uint64_t>(ahead_.size(), size - at)});
    if (!bytes::checked_add(at + count_bytes, storages[number].nbytes, &at)) break;
  }
  return input_.file->will_read(counts);
}

Result<void> LegacyParser::place(const zip::StorageRequest& storage, zip::StorageExtent& extent) {
  const auto refuse = [&](const std::string& why) {
    return failure(ErrorCode::corrupt, "storage " + bytes::quote(storage.key) + why, at_);
  };
  constexpr const char* truncated = "; it is truncated, the download or copy is incomplete";
  const std::uint64_t size = input_.file->size();
  if (!bytes::contains(size, at_, count_bytes))
    return refuse(" begins at byte " + std::to_string(at_) + ", but the file has " +
                  bytes::counted(size, "byte") + truncated);
  TRY_ASSIGN(const std::uint64_t count, read_count());
  const std::uint64_t expected = storage.nbytes / storage.element_size;
  if (count != expected)
    return refuse(" has " + bytes::counted(count, "element") + " by the count before them, " +
                  std::to_string(expected) + " by the object");
  at_ += count_bytes;
  if (!bytes::contains(size, at_, storage.nbytes))
    return refuse(" of " + bytes::counted(storage.nbytes, "byte") + " from byte " +
                  std::to_string(at_) + " on leaves the file of " + std::to_string(size) +
                  truncated);
  extent = {at_, storage.nbytes, 0, 0};
  at_ += storage.nbytes;
  ++stats_.storages_by_header;
  stats_.strategy = OffsetStrategy::headers;
  return {};
}

// Small storages are close together, so one read covers several counts.
Result<std::uint64_t> LegacyParser::read_count() {
  if (at_ < ahead_offset_ || !bytes::contains(ahead_size_, at_ - ahead_offset_, count_bytes)) {
    ahead_size_ =
        static_cast<std::size_t>(std::min<std::uint64_t>(ahead_.size(), input_.file->size() - at_));
    ahead_offset_ = at_;
    TRY(input_.cache->copy(at_, std::span(ahead_).first(ahead_size_)));
  }
  return bytes::load_le<std::uint64_t>(ahead_.data() + (at_ - ahead_offset_));
}

void LegacyParser::describe() {
  CheckpointInfo& facts = parsed_.facts;
  facts.format = Format::torch_legacy;
  facts.version = 1001;
  facts.byteorder = "little";
  facts.storage_alignment = 1;
  facts.pickle_bytes = parsed_.tree->pickle().size();
  facts.unread_bytes = input_.file->size() - at_;
}

}  // namespace

Result<Parsed> parse_legacy(Input& input, const OpenOptions& options, OpenStats& stats,
                            std::pmr::memory_resource& memory) {
  return LegacyParser(input, options, stats, memory).run();
}

Result<void> verify_legacy(Input& input, const catalog::Catalog& catalog, const Limits& limits) {
  OpenOptions options;
  options.limits = limits;
  OpenStats not_of_the_open;
  std::pmr::unsynchronized_pool_resource memory;
  TRY_ASSIGN(const Parsed now, parse_legacy(input, options, not_of_the_open, memory));
  const auto known = catalog.storages();
  const auto found = now.catalog.storages();
  if (std::ranges::equal(known, found, [&](const auto& a, const auto& b) {
        return a.position == b.position && a.nbytes == b.nbytes &&
               catalog.text(a.key) == now.catalog.text(b.key);
      }))
    return {};
  return failure(ErrorCode::corrupt, "its storages are others than when the file was opened");
}

}  // namespace weightmap::torch
