#include "runtime/base/catalog/builder.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/seed.hpp"

namespace weightmap::catalog {
namespace {

// The beginning of each section, and the number of slots, a power of two.
struct Layout {
  static constexpr std::uint64_t entries = 0;
  std::uint64_t storages, slots, slot_count, locations, path_parts, strings, dims, end;

  explicit Layout(const Counts& counts) noexcept
      : storages(entries + counts.tensors * sizeof(Entry)),
        slots(storages + counts.storages * sizeof(StorageEntry)),
        slot_count(std::bit_ceil(std::max<std::uint64_t>(2, counts.tensors * 2))),
        locations(slots + slot_count * sizeof(std::uint64_t)),
        path_parts(locations + counts.locations * sizeof(Text)),
        strings(path_parts + counts.path_parts * sizeof(std::uint32_t)),
        dims((strings + counts.string_bytes + alignof(std::int64_t) - 1) / alignof(std::int64_t) *
             alignof(std::int64_t)),
        end(dims + counts.dims * sizeof(std::int64_t)) {}
};

template <class T>
T* section(bytes::Buffer& block, std::uint64_t offset) noexcept {
  return reinterpret_cast<T*>(block.data() + offset);
}

std::uint64_t slot_for(std::uint64_t hash, std::uint32_t entry) noexcept {
  return (hash >> 32) << 32 | (entry + 1);
}

}  // namespace

Result<void> check_counts(const Counts& counts) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
  if (counts.dims <= most && counts.path_parts <= most && counts.string_bytes <= most) return {};
  return failure(ErrorCode::limit_exceeded,
                 "the names and shapes of the tensors need more than the 4 GiB that a catalog can "
                 "address");
}

CatalogBuilder::CatalogBuilder(const Counts& counts, std::pmr::memory_resource& memory) {
  const Layout at(counts);
  block_ = bytes::Buffer(at.end, memory);
  entries_ = section<Entry>(block_, at.entries);
  storages_ = section<StorageEntry>(block_, at.storages);
  slots_ = {section<std::uint64_t>(block_, at.slots), at.slot_count};
  locations_ = section<Text>(block_, at.locations);
  path_parts_ = section<std::uint32_t>(block_, at.path_parts);
  strings_ = section<char>(block_, at.strings);
  dims_ = section<std::int64_t>(block_, at.dims);
  std::fill(slots_.begin(), slots_.end(), 0);
}

void CatalogBuilder::add_location(std::string_view location) noexcept {
  locations_[locations_used_++] = add_text(location);
}

std::uint32_t CatalogBuilder::add_dims(std::span<const std::int64_t> sizes_and_strides) noexcept {
  std::copy(sizes_and_strides.begin(), sizes_and_strides.end(), dims_ + dims_used_);
  return std::exchange(dims_used_,
                       dims_used_ + static_cast<std::uint32_t>(sizes_and_strides.size()));
}

void CatalogBuilder::add_path_part(std::uint32_t length, bool is_integer) noexcept {
  path_parts_[path_parts_used_++] = length << 1 | (is_integer ? 1u : 0u);
}

const CatalogBuilder::Shape* CatalogBuilder::find_or_add_shape(const TensorInput& tensor) noexcept {
  const std::span<const std::int64_t> dims(tensor.dims, std::size_t{2} * tensor.rank);
  std::uint64_t hash = static_cast<std::uint64_t>(tensor.dtype);
  for (const std::int64_t dim : dims)
    hash = (hash ^ static_cast<std::uint64_t>(dim)) * 0x9E3779B97F4A7C15;
  Shape& place = shapes_[hash >> 58];
  if (!place.is_of(tensor)) {
    Shape shape{true, tensor.dims, tensor.dtype, tensor.rank, 0, {}};
    for (const std::int64_t dim : dims)
      if (dim < 0) return nullptr;
    if (!measure(tensor.dtype, tensor.dims, tensor.rank, shape.size)) return nullptr;
    shape.dims = add_dims(dims);
    place = shape;
  }
  last_shape_ = &place;
  return last_shape_;
}

bool CatalogBuilder::add_tensor(const TensorInput& tensor) noexcept {
  const Shape* const shape = shape_of(tensor);
  if (shape == nullptr || tensor.storage_offset < 0) return false;
  const StorageEntry& storage = storages_[tensor.storage];
  const std::uint64_t extent = shape->size.extent;
  std::uint64_t start;
  // A blocked tensor begins with its storage.
  const bool fits =
      (!is_blocked(tensor.dtype) || tensor.storage_offset == 0) &&
      bytes::checked_mul<std::uint64_t>(static_cast<std::uint64_t>(tensor.storage_offset),
                                        block_of(tensor.dtype).bytes, &start) &&
      bytes::contains(storage.nbytes, start, extent);
  // An empty view may begin anywhere, since it has no elements.
  if (!fits && extent != 0) return false;
  entries_[entries_used_] = {storage.position + (fits ? start : 0),
                             extent,
                             tensor.storage_offset,
                             tensor.name,
                             tensor.path,
                             shape->dims,
                             tensor.storage,
                             tensor.location,
                             tensor.dtype,
                             tensor.rank,
                             tensor.flags,
                             {},
                             shape->size.nbytes};
  if (listed_) {
    ++entries_used_;
    return true;
  }
  // Expanded tensors may state any size; the sum saturates.
  if (!bytes::checked_add(tensor_bytes_, shape->size.nbytes, &tensor_bytes_))
    tensor_bytes_ = ~std::uint64_t{0};
  if (entries_used_ - indexed_ == pending_max) index_oldest();
  const std::uint64_t hash = hash_name({strings_ + tensor.name.offset, tensor.name.length}, seed_);
  __builtin_prefetch(&slots_[hash & (slots_.size() - 1)], 1);
  pending_[entries_used_ % pending_max] = {hash, entries_used_};
  ++entries_used_;
  return true;
}

std::string CatalogBuilder::explain(const TensorInput& tensor) const {
  const std::span sizes(tensor.dims, tensor.rank);
  const std::span strides(tensor.dims + tensor.rank, tensor.rank);
  for (const auto& [what, numbers] : {std::pair{"size ", sizes}, std::pair{"stride ", strides}})
    for (std::size_t dim = 0; dim < numbers.size(); ++dim)
      if (numbers[dim] < 0)
        return std::string("has ") + what + std::to_string(numbers[dim]) + " in dimension " +
               std::to_string(dim);
  const StorageEntry& storage = storages_[tensor.storage];
  return "reaches beyond its storage " +
         bytes::quote({strings_ + storage.key.offset, storage.key.length}) + " of " +
         bytes::counted(storage.nbytes, "byte") + ": storage offset " +
         std::to_string(tensor.storage_offset) + ", shape " + bytes::listed(sizes) +
         (tensor.rank == 0 ? "" : ", strides " + bytes::listed(strides));
}

// Returns false if the name's neighbourhood in the table is crowded.
bool CatalogBuilder::insert(std::uint64_t hash, std::uint32_t entry) noexcept {
  // Among 2^24 names with random hashes the longest probe sequence is about 100 slots. After some
  // unsuccessful seeds, which is practically impossible, any length is accepted.
  constexpr std::uint32_t most_probes = 256;
  constexpr std::uint32_t most_seeds = 8;
  const std::uint64_t mask = slots_.size() - 1;
  std::uint64_t at = hash & mask;
  for (std::uint32_t probes = 0; slots_[at] != 0; at = (at + 1) & mask) {
    if (++probes == most_probes && times_indexed_ < most_seeds) return false;
    if (slots_[at] >> 32 != hash >> 32) continue;
    const std::uint32_t other = static_cast<std::uint32_t>(slots_[at]) - 1;
    if (name_of(other) != name_of(entry)) continue;
    entries_[other].flags |= Entry::ambiguous;
    has_ambiguous_names_ = true;
    return true;
  }
  slots_[at] = slot_for(hash, entry);
  return true;
}

void CatalogBuilder::index_oldest() noexcept {
  const auto [hash, entry] = pending_[indexed_ % pending_max];
  ++indexed_;
  std::uint64_t& slot = slots_[hash & (slots_.size() - 1)];
  if (slot == 0)  // the usual case
    slot = slot_for(hash, entry);
  else if (!insert(hash, entry))
    index_again();
}

void CatalogBuilder::index_again() noexcept {
  for (bool done = false; !done;) {
    ++times_indexed_;
    seed_ = bytes::fresh_seed();
    std::fill(slots_.begin(), slots_.end(), 0);
    done = true;
    for (indexed_ = 0; done && indexed_ < listed_.value_or(entries_used_); ++indexed_)
      done = insert(hash_name(name_of(indexed_), seed_), indexed_);
  }
}

void CatalogBuilder::index_all() noexcept {
  while (indexed_ < listed_.value_or(entries_used_)) index_oldest();
}

bool CatalogBuilder::has_ambiguous_names() noexcept {
  index_all();
  return has_ambiguous_names_;
}

Catalog CatalogBuilder::finish() && noexcept {
  index_all();
  Catalog made;
  made.block_ = std::move(block_);
  made.entries_ = {entries_, listed_.value_or(entries_used_)};
  made.placed_ = entries_used_;
  made.storages_ = {storages_, storages_used_};
  made.slots_ = slots_;
  made.dims_ = dims_;
  made.path_parts_ = path_parts_;
  made.locations_ = locations_;
  made.strings_ = strings_;
  made.seed_ = seed_;
  made.tensor_bytes_ = tensor_bytes_;
  return made;
}

}  // namespace weightmap::catalog
