// Fills a catalog block whose exact size is known before the first entry, and proves that each
// tensor lies in its storage, for all formats.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/bytes/buffer.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/catalog/catalog.hpp"
#include "runtime/base/catalog/view_size.hpp"
#include "weightmap/result.hpp"

namespace weightmap::catalog {

// Upper bounds of all counts. string_bytes: names, storage keys and locations together.
struct Counts {
  std::uint64_t tensors = 0;
  std::uint64_t storages = 0;
  std::uint64_t dims = 0;
  std::uint64_t path_parts = 0;
  std::uint64_t locations = 0;
  std::uint64_t string_bytes = 0;
};

// Fails with limit_exceeded if a sum does not fit 32 bits, which the offsets in a catalog have.
Result<void> check_counts(const Counts& counts);

// One tensor as a file describes it; add_tensor() proves its numbers.
struct TensorInput {
  Text name;                    // from add_text()
  Path path;                    // from add_path_part()
  const std::int64_t* dims;     // `rank` sizes, then strides in elements; valid until finish()
  std::int64_t storage_offset;  // elements
  std::uint32_t storage;        // in the order of add_storage()
  std::uint16_t location;       // in the order of add_location()
  DType dtype;
  std::uint8_t rank;
  std::uint8_t flags;  // of TensorView and Entry
};

// Precondition of every add_*: the counts are not exceeded, and check_counts() accepts them.
class CatalogBuilder {
 public:
  // Throws std::bad_alloc. `memory` must outlive the catalog.
  CatalogBuilder(const Counts& counts, std::pmr::memory_resource& memory);
  CatalogBuilder(const CatalogBuilder&) = delete;

  // Reserves space for one name; the caller writes the text.
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
  // Precondition: the bytes lie in file `source` of the checkpoint.
  void add_storage(std::string_view key, std::uint64_t position, std::uint64_t nbytes,
                   std::uint32_t crc32, std::uint32_t source = 0) noexcept {
    add_storage(add_text(key), position, nbytes, crc32, source);
  }
  // Does the same with a key that is a text of the catalog, such as the name of its only tensor.
  void add_storage(const Text& key, std::uint64_t position, std::uint64_t nbytes,
                   std::uint32_t crc32, std::uint32_t source = 0) noexcept {
    storages_[storages_used_++] = {position, nbytes, key, crc32, source};
  }
  // Adds one part to the current path; path_position() is the beginning of the next one.
  void add_path_part(std::uint32_t length, bool is_integer) noexcept;
  std::uint32_t path_position() const noexcept { return path_parts_used_; }
  // Proves in checked arithmetic that sizes, strides and offset are not negative and that offset +
  // sum((size - 1) * stride) stays inside the storage; an empty view may begin anywhere. Returns
  // false otherwise; explain() then has the reason. Also adds the name to the index; a repeated
  // name makes the first entry of that name ambiguous.
  [[nodiscard]] bool add_tensor(const TensorInput& tensor) noexcept;
  // Tensors that are added from here on are not among the catalog's own; see Catalog::operator[].
  void end_listed() noexcept {
    index_all();
    listed_ = entries_used_;
  }
  // Returns the fault of a tensor that was not added: "reaches beyond its storage ...".
  [[gnu::cold]] std::string explain(const TensorInput& tensor) const;

  // True if two tensors have one name; indexes all of them first.
  bool has_ambiguous_names() noexcept;

  Catalog finish() && noexcept;

 private:
  // The facts that tensors with the same sizes, strides and dtype share.
  struct Shape {
    bool is_known = false;
    const std::int64_t* from = nullptr;  // a scalar may have its dims here
    DType dtype = DType::uint8;
    std::uint8_t rank = 0;
    std::uint32_t dims = 0;  // in the catalog
    ViewSize size;

    bool is_of(const TensorInput& tensor) const noexcept {
      return is_known && dtype == tensor.dtype && rank == tensor.rank &&
             (from == tensor.dims || std::equal(from, from + 2 * rank, tensor.dims));
    }
  };
  // Returns a shared shape if it is a recent one, otherwise a new one. nullptr if a number is
  // negative or does not fit 63 bits.
  const Shape* shape_of(const TensorInput& tensor) noexcept {
    return last_shape_->is_of(tensor) ? last_shape_ : find_or_add_shape(tensor);
  }
  const Shape* find_or_add_shape(const TensorInput& tensor) noexcept;
  std::uint32_t add_dims(std::span<const std::int64_t> sizes_and_strides) noexcept;
  // Insert all pending entries, or the oldest one.
  void index_all() noexcept;
  void index_oldest() noexcept;
  bool insert(std::uint64_t hash, std::uint32_t entry) noexcept;
  void index_again() noexcept;
  std::string_view name_of(std::uint32_t entry) const noexcept {
    return {strings_ + entries_[entry].name.offset, entries_[entry].name.length};
  }

  // Pending entries wait while the cache line of their slot is prefetched.
  struct Pending {
    std::uint64_t hash;
    std::uint32_t entry;
  };
  static constexpr std::uint32_t pending_max = 16;

  std::uint64_t seed_ = 0;  // of hash_name()
  std::uint64_t tensor_bytes_ = 0;
  bytes::Buffer block_;  // of all of these
  Entry* entries_;
  StorageEntry* storages_;
  std::span<std::uint64_t> slots_;
  Text* locations_;
  std::uint32_t* path_parts_;
  char* strings_;
  std::int64_t* dims_;
  Pending pending_[pending_max];
  std::array<Shape, 64> shapes_;
  const Shape* last_shape_ = shapes_.data();
  std::uint32_t indexed_ = 0;        // entries that are in the index
  std::uint32_t times_indexed_ = 1;  // a new seed each time
  bool has_ambiguous_names_ = false;
  std::optional<std::uint32_t> listed_;
  std::uint32_t entries_used_ = 0;
  std::uint32_t storages_used_ = 0;
  std::uint32_t dims_used_ = 0;
  std::uint32_t path_parts_used_ = 0;
  std::uint32_t locations_used_ = 0;
  std::uint32_t strings_used_ = 0;
};

}  // namespace weightmap::catalog
