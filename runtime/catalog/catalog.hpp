// The frozen table of a checkpoint's tensors, and its lookup by name.
//
// One contiguous block without a single pointer in it, so that the same bytes work on the heap, in
// shared memory and in a file:
//
//   Header | near dims i64[] | Entry[tensors] | StorageEntry[storages] | slots u64[]
//   | Text[locations] | path parts u32[] | strings | dims i64[]
//
// The sizes and strides of the first shapes lie near the header, those of more behind everything
// else. Most checkpoints have few shapes, so a lookup comes to a page that it has seen.
//
// Positions are those of the one space in which the files of a checkpoint lie; of a single file
// they are the offsets in it.
//
// The index is a flat table with linear probing at a load of at most one half. A slot holds the
// upper half of the name's XXH3 hash and the entry's number plus one; 0 is empty. The seed of the
// hash is 0, so that equal files have equal catalogs; only names that crowd together in the table,
// as somebody may have chosen them to, are hashed with another seed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/bytes/buffer.hpp"
#include "weightmap/dtype.hpp"

namespace weightmap::catalog {

struct Text {
  std::uint32_t offset;  // into the strings
  std::uint32_t length;
};

// How a name is made of the keys on the way to a tensor. A part is the length of its text times
// two, plus one for an integer; the texts follow one another in the name with a dot between.
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
  std::uint32_t dims;  // index of the sizes, near ones first; the strides follow them
  std::uint32_t storage;
  std::uint16_t location;
  DType dtype;
  std::uint8_t rank;
  std::uint8_t flags;
  std::uint8_t unused[3];
  std::uint64_t nbytes;  // elements x element size
};
// One cache line each, so that a lookup waits for one.
static_assert(sizeof(Entry) == 64);

struct StorageEntry {
  std::uint64_t position;  // of the first byte
  std::uint64_t nbytes;
  Text key;
  std::uint32_t crc32;
  std::uint32_t source;  // the file it lies in
};
static_assert(sizeof(StorageEntry) == 32);

struct Header {
  static constexpr std::uint64_t magic_number = 0x474F4C4154434D57;  // "WMCTALOG"
  static constexpr std::uint32_t current_version = 3;
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t block_bytes;
  std::uint64_t tensors;
  std::uint64_t storages;
  std::uint64_t dims;  // that are not near
  std::uint64_t path_parts;
  std::uint64_t locations;
  std::uint64_t slots;  // a power of two
  std::uint64_t string_bytes;
  std::uint64_t tensor_bytes;  // sum of nbytes over all entries, or 2^64 - 1
  std::uint64_t seed;          // of hash_name()
  std::uint64_t unused[4];
};
static_assert(sizeof(Header) == 128);

// How many dims there is room for between the header and the entries, which begin with a KiB.
inline constexpr std::uint32_t near_dims = 112;
static_assert(sizeof(Header) + near_dims * sizeof(std::int64_t) == 1024);

// Where each section begins, from the counts in a header.
struct Sections {
  static constexpr std::uint64_t near = sizeof(Header);
  static constexpr std::uint64_t entries = near + near_dims * sizeof(std::int64_t);
  std::uint64_t storages, slots, locations, path_parts, strings, dims, end;

  explicit Sections(const Header& header) noexcept
      : storages(entries + header.tensors * sizeof(Entry)),
        slots(storages + header.storages * sizeof(StorageEntry)),
        locations(slots + header.slots * sizeof(std::uint64_t)),
        path_parts(locations + header.locations * sizeof(Text)),
        strings(path_parts + header.path_parts * sizeof(std::uint32_t)),
        dims((strings + header.string_bytes + alignof(std::int64_t) - 1) / alignof(std::int64_t) *
             alignof(std::int64_t)),
        end(dims + header.dims * sizeof(std::int64_t)) {}
};

// The hash that the index is built with.
std::uint64_t hash_name(std::string_view name, std::uint64_t seed) noexcept;

class Catalog {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFF;

  Catalog() noexcept = default;
  // Takes over a block that a CatalogBuilder filled.
  explicit Catalog(bytes::Buffer block) noexcept;
  // Borrows a block whose header is `header`. Precondition: its sections fit the block.
  Catalog(const Header& header, std::span<const std::byte> block) noexcept;

  std::size_t size() const noexcept { return entries_.size(); }
  std::uint64_t tensor_bytes() const noexcept { return tensor_bytes_; }
  const Entry& operator[](std::size_t index) const noexcept { return entries_[index]; }
  std::span<const Entry> entries() const noexcept { return entries_; }
  std::span<const StorageEntry> storages() const noexcept { return storages_; }

  // The first entry of this name, or `none`. No allocation; one hash, on average one and a half
  // probes, one comparison.
  std::uint32_t find(std::string_view name) const noexcept;

  std::string_view text(const Text& text) const noexcept {
    return {strings_ + text.offset, text.length};
  }
  std::string_view name(const Entry& entry) const noexcept { return text(entry.name); }
  std::string_view location(const Entry& entry) const noexcept {
    return text(locations_[entry.location]);
  }
  // Sizes, then strides: 2 * rank values.
  const std::int64_t* dims(const Entry& entry) const noexcept {
    return entry.dims < near_dims ? near_ + entry.dims : dims_ + (entry.dims - near_dims);
  }

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

  std::span<const std::byte> block() const noexcept { return block_; }

 private:
  bytes::Buffer owner_;  // of the block, unless that is borrowed
  std::span<const std::byte> block_;
  std::span<const Entry> entries_;
  std::span<const StorageEntry> storages_;
  const std::int64_t* near_ = nullptr;
  const std::int64_t* dims_ = nullptr;
  const std::uint32_t* path_parts_ = nullptr;
  const Text* locations_ = nullptr;
  const std::uint64_t* slots_ = nullptr;
  const char* strings_ = nullptr;
  std::uint64_t slot_mask_ = 0;
  std::uint64_t seed_ = 0;
  std::uint64_t tensor_bytes_ = 0;
};

}  // namespace weightmap::catalog
