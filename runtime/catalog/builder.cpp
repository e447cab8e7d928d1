#include "runtime/catalog/builder.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/bytes/checked.hpp"
#include "runtime/bytes/counted.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/bytes/seed.hpp"

namespace weightmap::catalog {
namespace {

Header make_header(const Counts& counts) noexcept {
  Header header{};
  header.magic = Header::magic_number;
  header.version = Header::current_version;
  header.header_bytes = sizeof(Header);
  header.tensors = counts.tensors;
  header.storages = counts.storages;
  header.dims = counts.dims;
  header.path_parts = counts.path_parts;
  header.locations = counts.locations;
  header.slots = std::bit_ceil(std::max<std::uint64_t>(2, counts.tensors * 2));
  header.string_bytes = counts.string_bytes;
  header.block_bytes = Sections(header).end;
  return header;
}

std::uint64_t slot_for(std::uint64_t hash, std::uint32_t entry) noexcept {
  return (hash >> 32) << 32 | (entry + 1);
}

}  // namespace

CatalogBuilder::CatalogBuilder(const Counts& counts, std::pmr::memory_resource& memory)
    : header_(make_header(counts)),
      at_(header_),
      block_(header_.block_bytes, memory),
      entries_(section<Entry>(at_.entries)),
      storages_(section<StorageEntry>(at_.storages)),
      slots_(section<std::uint64_t>(at_.slots)),
      strings_(section<char>(at_.strings)) {
  std::fill_n(slots_, header_.slots, 0);
  std::fill_n(section<std::int64_t>(at_.near), near_dims, 0);
}

void CatalogBuilder::add_location(std::string_view location) noexcept {
  section<Text>(at_.locations)[locations_used_++] = add_text(location);
}

std::uint32_t CatalogBuilder::add_dims(std::span<const std::int64_t> sizes_and_strides) noexcept {
  const auto count = static_cast<std::uint32_t>(sizes_and_strides.size());
  const bool is_near = count <= near_dims - near_used_;
  std::uint32_t& used = is_near ? near_used_ : dims_used_;
  auto* const dims = section<std::int64_t>(is_near ? at_.near : at_.dims);
  std::copy(sizes_and_strides.begin(), sizes_and_strides.end(), dims + used);
  used += count;
  return used - count + (is_near ? 0 : near_dims);
}

void CatalogBuilder::add_path_part(std::uint32_t length, bool is_integer) noexcept {
  section<std::uint32_t>(at_.path_parts)[path_parts_used_++] = length << 1 | (is_integer ? 1u : 0u);
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

std::optional<Entry> CatalogBuilder::entry_of(const TensorInput& tensor) noexcept {
  const Shape* const shape = shape_of(tensor);
  if (shape == nullptr || tensor.storage_offset < 0) return std::nullopt;
  std::uint64_t start;
  // A blocked tensor begins with its storage.
  if ((is_blocked(tensor.dtype) && tensor.storage_offset != 0) ||
      !bytes::checked_mul<std::uint64_t>(static_cast<std::uint64_t>(tensor.storage_offset),
                                         block_of(tensor.dtype).bytes, &start)) {
    if (shape->size.extent != 0) return std::nullopt;
    start = 0;
  }
  return Entry{start,
               shape->size.extent,
               tensor.storage_offset,
               {},
               {},
               shape->dims,
               0,
               tensor.location,
               tensor.dtype,
               tensor.rank,
               tensor.flags,
               {},
               shape->size.nbytes};
}

std::string CatalogBuilder::explain(const TensorInput& tensor) const {
  const std::size_t count = std::size_t{2} * tensor.rank;
  std::string shape = "shape [";
  std::string negative;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string dim = std::to_string(tensor.dims[i]);
    if (i == tensor.rank) shape += "], strides [";
    if (i % tensor.rank != 0) shape += ", ";
    shape += dim;
    if (tensor.dims[i] < 0 && negative.empty())
      negative = (i < tensor.rank ? "has size " : "has stride ") + dim + " in dimension " +
                 std::to_string(i % tensor.rank);
  }
  if (!negative.empty()) return negative;
  const StorageEntry& storage = storages_[tensor.storage];
  return "reaches beyond its storage " +
         bytes::quote({strings_ + storage.key.offset, storage.key.length}) + " of " +
         bytes::counted(storage.nbytes, "byte") + ": storage offset " +
         std::to_string(tensor.storage_offset) + ", " + shape + "]";
}

// False if the name's neighbourhood in the table is crowded.
bool CatalogBuilder::insert(std::uint64_t hash, std::uint32_t entry) noexcept {
  // Among 2^24 names with hashes that nobody chose the longest way is about 100 slots. After some
  // seeds that did not help, which nobody lives to see, any way will do.
  constexpr std::uint32_t most_probes = 256;
  constexpr std::uint32_t most_seeds = 8;
  const std::uint64_t mask = header_.slots - 1;
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
  std::uint64_t& slot = slots_[hash & (header_.slots - 1)];
  if (slot == 0)  // mostly
    slot = slot_for(hash, entry);
  else if (!insert(hash, entry))
    index_again();
}

void CatalogBuilder::index_again() noexcept {
  for (bool done = false; !done;) {
    ++times_indexed_;
    header_.seed = bytes::fresh_seed();
    std::fill_n(slots_, header_.slots, 0);
    done = true;
    for (indexed_ = 0; done && indexed_ < entries_used_; ++indexed_)
      done = insert(hash_name(name_of(indexed_), header_.seed), indexed_);
  }
}

void CatalogBuilder::index_all() noexcept {
  while (indexed_ < entries_used_) index_oldest();
}

bool CatalogBuilder::has_ambiguous_names() noexcept {
  index_all();
  return has_ambiguous_names_;
}

Catalog CatalogBuilder::finish() && noexcept {
  index_all();
  // The block may be written to a file: not with what this memory held before.
  const auto clear = [this](std::uint64_t from, std::uint64_t to) {
    std::memset(block_.data() + from, 0, to - from);
  };
  clear(at_.locations + locations_used_ * sizeof(Text), at_.path_parts);
  clear(at_.path_parts + path_parts_used_ * sizeof(std::uint32_t), at_.strings);
  clear(at_.strings + strings_used_, at_.dims);
  header_.storages = storages_used_;
  header_.dims = dims_used_;
  const Sections used(header_);
  if (used.slots != at_.slots)  // fewer storages than were counted: the rest moves up
    std::memmove(block_.data() + used.slots, block_.data() + at_.slots, used.end - used.slots);
  header_.block_bytes = used.end;
  std::memcpy(block_.data(), &header_, sizeof header_);
  return Catalog(std::move(block_));
}

}  // namespace weightmap::catalog
