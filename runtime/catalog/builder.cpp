#include "runtime/catalog/builder.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/bytes/checked.hpp"

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

}  // namespace

CatalogBuilder::CatalogBuilder(const Counts& counts, std::pmr::memory_resource& memory)
    : header_(make_header(counts)),
      at_(header_),
      block_(header_.block_bytes, memory),
      entries_(section<Entry>(at_.entries)),
      slots_(section<std::uint64_t>(at_.slots)),
      strings_(section<char>(at_.strings)) {
  std::fill_n(slots_, header_.slots, 0);
}

void CatalogBuilder::add_location(std::string_view location) noexcept {
  section<Text>(at_.locations)[locations_used_++] = add_text(location);
}

void CatalogBuilder::add_storage(std::string_view key, std::uint64_t payload_offset,
                                 std::uint64_t nbytes, std::uint32_t crc32) noexcept {
  section<StorageEntry>(at_.storages)[storages_used_++] = {payload_offset, nbytes, add_text(key),
                                                           crc32, 0};
}

std::uint32_t CatalogBuilder::add_dims(std::span<const std::int64_t> sizes_and_strides) noexcept {
  const std::uint32_t first = dims_used_;
  std::copy(sizes_and_strides.begin(), sizes_and_strides.end(),
            section<std::int64_t>(at_.dims) + first);
  dims_used_ += static_cast<std::uint32_t>(sizes_and_strides.size());
  return first;
}

void CatalogBuilder::add_path_part(std::uint32_t length, bool is_integer) noexcept {
  section<std::uint32_t>(at_.path_parts)[path_parts_used_++] = length << 1 | (is_integer ? 1u : 0u);
}

void CatalogBuilder::add_entry(const Entry& entry) noexcept {
  // Expanded tensors may claim any size; a sum that does not fit says so by the largest value.
  std::uint64_t& sum = header_.tensor_bytes;
  if (!bytes::checked_add(sum, entry.nbytes, &sum)) sum = ~std::uint64_t{0};
  if (entries_used_ - indexed_ == pending_max) index_oldest();
  const std::uint64_t hash = hash_name({strings_ + entry.name.offset, entry.name.length});
  __builtin_prefetch(slots_ + (hash & (header_.slots - 1)), 1);
  entries_[entries_used_] = entry;
  pending_[entries_used_ % pending_max] = {hash, entries_used_};
  ++entries_used_;
}

void CatalogBuilder::index_oldest() noexcept {
  const auto [hash, entry] = pending_[indexed_++ % pending_max];
  const Text& text = entries_[entry].name;
  const std::uint64_t mask = header_.slots - 1;
  std::uint64_t at = hash & mask;
  for (; slots_[at] != 0; at = (at + 1) & mask) {
    if (slots_[at] >> 32 != hash >> 32) continue;
    Entry& other = entries_[static_cast<std::uint32_t>(slots_[at]) - 1];
    if (other.name.length == text.length &&
        std::memcmp(strings_ + other.name.offset, strings_ + text.offset, text.length) == 0) {
      other.flags |= Entry::ambiguous;
      return;
    }
  }
  slots_[at] = (hash >> 32) << 32 | (entry + 1);
}

Catalog CatalogBuilder::finish() && noexcept {
  while (indexed_ < entries_used_) index_oldest();
  header_.dims = dims_used_;
  header_.block_bytes = Sections(header_).end;
  // The block may be written to a file: not with what this memory held before.
  const std::uint64_t strings_end = at_.strings + header_.string_bytes;
  std::memset(block_.data() + strings_end, 0, at_.dims - strings_end);
  std::memcpy(block_.data(), &header_, sizeof header_);
  return Catalog(std::move(block_));
}

}  // namespace weightmap::catalog
