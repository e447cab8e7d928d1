// Fills a catalog block whose size is known exactly before the first entry is written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string_view>

#include "runtime/bytes/buffer.hpp"
#include "runtime/catalog/catalog.hpp"

namespace weightmap::catalog {

// How much of everything there will be; of dims it may be less, which leaves the end of the block
// unused. string_bytes: names, storage keys and locations together.
struct Counts {
  std::uint64_t tensors = 0;
  std::uint64_t storages = 0;
  std::uint64_t dims = 0;
  std::uint64_t path_parts = 0;
  std::uint64_t locations = 0;
  std::uint64_t string_bytes = 0;
};

// Precondition of every add_*: no more of anything than was counted; 32 bits hold each count.
class CatalogBuilder {
 public:
  // Throws std::bad_alloc. `memory` must outlive the catalog.
  CatalogBuilder(const Counts& counts, std::pmr::memory_resource& memory);

  // Room for one name; the caller writes the text.
  Text add_text(std::uint32_t length, char*& text) noexcept {
    const Text added{strings_used_, length};
    text = strings_ + strings_used_;
    strings_used_ += length;
    return added;
  }
  Text add_text(std::string_view text) noexcept {
    char* to;
    const Text added = add_text(static_cast<std::uint32_t>(text.size()), to);
    std::copy(text.begin(), text.end(), to);
    return added;
  }
  void add_location(std::string_view location) noexcept;
  void add_storage(std::string_view key, std::uint64_t payload_offset, std::uint64_t nbytes,
                   std::uint32_t crc32) noexcept;
  std::uint32_t add_dims(std::span<const std::int64_t> sizes_and_strides) noexcept;
  // Adds one part to the path that is being written; path_position() is where the next one begins.
  void add_path_part(std::uint32_t length, bool is_integer) noexcept;
  std::uint32_t path_position() const noexcept { return path_parts_used_; }
  // Also puts the name into the index; a name that is there already makes the first entry of that
  // name ambiguous.
  void add_entry(const Entry& entry) noexcept;

  Catalog finish() && noexcept;

 private:
  template <class T>
  T* section(std::uint64_t offset) noexcept {
    return reinterpret_cast<T*>(block_.data() + offset);
  }
  // Inserts the pending entry that has waited longest.
  void index_oldest() noexcept;

  // Entries wait here while the cache line of their slot is on its way.
  struct Pending {
    std::uint64_t hash;
    std::uint32_t entry;
  };
  static constexpr std::uint32_t pending_max = 16;

  Header header_;
  Sections at_;
  bytes::Buffer block_;
  Entry* entries_;
  std::uint64_t* slots_;
  char* strings_;
  Pending pending_[pending_max];
  std::uint32_t indexed_ = 0;  // entries that are in the index
  std::uint32_t entries_used_ = 0;
  std::uint32_t storages_used_ = 0;
  std::uint32_t dims_used_ = 0;
  std::uint32_t path_parts_used_ = 0;
  std::uint32_t locations_used_ = 0;
  std::uint32_t strings_used_ = 0;
};

}  // namespace weightmap::catalog
