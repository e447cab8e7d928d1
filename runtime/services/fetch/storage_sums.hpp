// Checksums of storages whose bytes arrive in pieces, in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"

namespace weightmap {

struct SummedStorage {
  ByteRange range;          // of the file, not empty
  std::uint32_t crc32 = 0;  // as the file says
  std::string_view key = {};
};

// Each byte is read once, as it arrives; what remains of it is the CRC-32 of its range, which is
// joined with those of the ranges beside it. Const members may be called from any thread, also
// during add().
class StorageSums {
 public:
  // The storages do not overlap.
  explicit StorageSums(std::vector<SummedStorage> storages);

  struct Complete {
    const SummedStorage* storage;
    std::uint32_t crc32;  // of its bytes
  };
  // Adds bytes of the file, and returns the storages of which these were the last. The bytes of a
  // storage may be added once more after that.
  std::vector<Complete> add(std::uint64_t offset, std::span<const std::byte> bytes);

  bool is_empty() const noexcept { return storages_.empty(); }
  // The parts of the range that are in no storage.
  std::vector<ByteRange> without_storages(ByteRange range) const;
  // The range, with the rest of the storages at its two ends.
  ByteRange with_storages(ByteRange range) const noexcept;

 private:
  struct Part {
    std::uint64_t length;
    std::uint32_t crc32;
  };
  using Storages = std::span<const SummedStorage>;
  Storages storages_in(ByteRange range) const noexcept;
  // Joins the part with those beside it. Returns true once it is all of the storage.
  bool join(const SummedStorage& storage, std::uint64_t offset, Part& part);

  const std::vector<SummedStorage> storages_;  // by offset
  std::map<std::uint64_t, Part> parts_;        // of storages that are not complete, by offset
};

}  // namespace weightmap
