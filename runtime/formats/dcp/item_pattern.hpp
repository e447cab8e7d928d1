// The bytes that all items of one layout have in common.
//
// What a parser finds in an item depends on the bytes at its ends, but for those of the tensor, of
// the checksums and of torch's serialization id. So an item of the same length whose other bytes
// equal those of a proven item is proven, too, and has its tensor at the same place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/zip/directory.hpp"

namespace weightmap::dcp {

// The beginning and the end of an item, which overlap in a short one.
struct ItemEnds {
  std::uint64_t length;  // of the item
  std::span<const std::byte> head;
  std::span<const std::byte> tail;

  // Returns this range of the item; nothing if neither end has all of it.
  std::span<const std::byte> bytes(std::uint64_t offset, std::uint64_t size) const noexcept;
};

class ItemPattern {
 public:
  // nullopt if the item has another form than torch's, or a signature that a reader might take for
  // a second end of the archive. The directory is the item's.
  static std::optional<ItemPattern> of(const ItemEnds& ends, const zip::Directory& directory);

  // The place of the storage in the item, by its local header.
  std::uint64_t storage_position() const noexcept { return storage_position_; }
  bool matches(const ItemEnds& ends) const noexcept;
  // Returns the checksum of the storage. Precondition: matches(ends).
  std::uint32_t crc32(const ItemEnds& ends) const noexcept;

 private:
  struct Range {
    std::uint64_t begin, end;
  };
  struct Common {
    std::uint64_t begin;
    std::vector<std::byte> bytes;
  };

  ItemPattern() = default;
  bool add_gaps(const ItemEnds& ends, const zip::Directory& directory);
  void add_common(std::span<const std::byte> bytes, std::uint64_t begin);

  std::uint64_t length_ = 0;
  std::uint64_t storage_position_ = 0;
  std::uint64_t crc32_position_ = 0;
  std::vector<Range> gaps_;  // of the item, where others differ
  std::vector<Common> common_;
};

}  // namespace weightmap::dcp
