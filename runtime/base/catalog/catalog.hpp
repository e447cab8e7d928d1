// The frozen table of a checkpoint's tensors, and its lookup by name.
//
// One contiguous block, in this order:
//
//   Entry[tensors] | StorageEntry[storages] | slots u64[] | Text[locations] | path parts u32[]
//   | strings | dims i64[]
//
// Positions refer to the address space that all files of a checkpoint share; for a single file they
// are its offsets.
//
// The index is a flat table with linear probing at a load of at most one half. A slot holds the
// upper half of the name's XXH3 hash and the entry's number plus one; 0 is empty. The seed of the
// hash is 0; only if names crowd together in the table, as in a hostile file, another seed is used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/bytes/buffer.hpp"
#include "weightmap/dtype.hpp"

namespace weightmap::catalog {

struct Text {
  std::uint32_t offset;  // into the strings
  std::uint32_t length;
};

// The keys on the way to a tensor whose texts make up its name. A part is the length of its text
// times two, plus one for an integer; the texts follow one another in the name with a dot between.
struct Path {
  static constexpr std::uint32_t is_name = 0xFFFFFFFF;  // one string key: the name itself
  std::uint32_t first;                                  // into the path parts, or is_name
  std::uint32_t length;                                 // number of parts
};

struct Entry {
  enum Flag : std::uint8_t {
    // The lowest three bits are TensorView::Flags.
    requires_grad = 8,
    parameter = 16,
    ambiguous = 32,  // a later entry has the same name
    buffer = 64,
  };
  std::uint64_t position;       // of the first element
  std::uint64_t extent;         // bytes that the strides reach; 0 for an empty tensor
  std::int64_t storage_offset;  // elements
  Text name;
  Path path;
  std::uint32_t dims;  // index of the sizes; the strides follow them
  std::uint32_t storage;
  std::uint16_t location;
  DType dtype;
  std::uint8_t rank;
  std::uint8_t flags;
  std::uint8_t unused[3];
  std::uint64_t nbytes;  // elements x element size
};
// One cache line each, so that a lookup loads one.
static_assert(sizeof(Entry) == 64);

struct StorageEntry {
  std::uint64_t position;  // of the first byte
  std::uint64_t nbytes;
  Text key;
  std::uint32_t crc32;
  std::uint32_t source;  // the file it lies in
};
static_assert(sizeof(StorageEntry) == 32);

// Returns the hash of the index.
std::uint64_t hash_name(std::string_view name, std::uint64_t seed) noexcept;

class Catalog {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFF;

  Catalog() noexcept = default;  // an empty catalog; CatalogBuilder makes the others

  std::size_t size() const noexcept { return entries_.size(); }
  std::uint64_t tensor_bytes() const noexcept { return tensor_bytes_; }
  // Entries behind the size() ones have a place, but the index and entries() do not know them.
  const Entry& operator[](std::size_t index) const noexcept { return entries_.data()[index]; }
  std::span<const Entry> entries() const noexcept { return entries_; }
  std::span<const StorageEntry> storages() const noexcept { return storages_; }

  // Returns the first entry of this name, or `none`. No allocation; one hash, on average one and a
  // half probes, one comparison.
  std::uint32_t find(std::string_view name) const noexcept;

  std::string_view text(const Text& text) const noexcept {
    return {strings_ + text.offset, text.length};
  }
  std::string_view name(const Entry& entry) const noexcept { return text(entry.name); }
  std::string_view location(const Entry& entry) const noexcept {
    return text(locations_[entry.location]);
  }
  // Sizes, then strides: 2 * rank values.
  const std::int64_t* dims(const Entry& entry) const noexcept { return dims_ + entry.dims; }

  std::size_t path_length(const Entry& entry) const noexcept {
    return entry.path.first == Path::is_name ? 1 : entry.path.length;
  }
  struct PathText {
    std::string_view text;
    bool is_integer;
  };
  // Calls visit(PathText) for each part, from the root on.
  template <class Visit>
  void visit_path(const Entry& entry, Visit visit) const {
    std::string_view rest = name(entry);
    if (entry.path.first == Path::is_name) return visit(PathText{rest, false});
    for (std::uint32_t i = 0; i < entry.path.length; ++i) {
      const std::uint32_t part = path_parts_[entry.path.first + i];
      visit(PathText{rest.substr(0, part >> 1), (part & 1) != 0});
      rest.remove_prefix(std::min<std::size_t>(rest.size(), (part >> 1) + 1));
    }
  }

  // Makes positions in a part of a file, which begins at `by`, ones in the file. Those behind
  // `size`, that of the part, lie in no file and stay.
  void shift(std::uint64_t by, std::uint64_t size) noexcept;

  // The slots of the index, for tests of the probe length.
  std::span<const std::uint64_t> slots() const noexcept { return slots_; }

 private:
  friend class CatalogBuilder;

  bytes::Buffer block_;
  std::span<const Entry> entries_;
  std::size_t placed_ = 0;  // entries, with those behind them
  std::span<const StorageEntry> storages_;
  std::span<const std::uint64_t> slots_;  // their number is a power of two
  const std::int64_t* dims_ = nullptr;
  const std::uint32_t* path_parts_ = nullptr;
  const Text* locations_ = nullptr;
  const char* strings_ = nullptr;
  std::uint64_t seed_ = 0;
  std::uint64_t tensor_bytes_ = 0;
};

}  // namespace weightmap::catalog
