// The storages that a pickle refers to, each once, in the order of first reference.
//
// The table is the offset cache by key: the first reference to a key makes an entry, whose offset
// is computed once. Further references (tied weights, views) use the entry and are counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/bytes/decimal.hpp"
#include "runtime/base/bytes/seed.hpp"
#include "runtime/base/catalog/catalog.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

class StorageTable {
 public:
  // `memory` must outlive the table. The table reserves space for `expected` storages.
  StorageTable(std::pmr::memory_resource& memory, std::size_t expected)
      : storages_(&memory), by_number_(&memory) {
    storages_.reserve(expected);
  }

  // Returns the number of the storage `key` of `numel` elements; an untyped one has uint8. Fails
  // with corrupt if the key is known with another size or another type (torch gives all tensors of
  // a storage the storage's type), or if the size does not fit 64 bits. `key` is borrowed.
  Result<std::uint32_t> intern(std::string_view key, std::int64_t numel, DType dtype,
                               std::uint64_t file_offset);

  // Fast path of intern() for the usual key, which is the number of storages so far: torch numbers
  // storages as it meets them. Returns nullopt for any other key; the caller then uses intern().
  std::optional<std::uint32_t> intern_next(std::string_view key, std::int64_t numel, DType dtype,
                                           std::uint8_t element_size) {
    const auto next = static_cast<std::uint32_t>(storages_.size());
    if (!is_counted_ || bytes::decimal(key) != next || numel < 0 || numel > max_numel)
      return std::nullopt;
    storages_.push_back(
        {key, static_cast<std::uint64_t>(numel) * element_size, element_size, dtype, next});
    key_bytes_ += key.size();
    return next;
  }

  // By number.
  std::span<const zip::StorageRequest> storages() const noexcept { return storages_; }
  std::uint64_t cache_hits() const noexcept { return cache_hits_; }
  // Counts a reference to a known storage that needed no lookup of its key.
  void count_hit() noexcept { ++cache_hits_; }
  std::uint64_t key_bytes() const noexcept { return key_bytes_; }

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFF;
  static constexpr std::int64_t max_numel = std::int64_t{1} << 58;  // x 16 bytes fits 63 bits
  // Keys are "0", "1", ... in today's torch files, and index a vector. Other keys are hashed.
  std::uint32_t* slot_of(std::string_view key, std::uint32_t number);
  // Fills by_number_ at the first key that is not the number of storages before it.
  void stop_counting();

  std::pmr::vector<zip::StorageRequest> storages_;
  std::pmr::vector<std::uint32_t> by_number_;
  // Seeded, since the author of the file chose the keys.
  struct KeyHash {
    KeyHash() noexcept : seed(bytes::fresh_seed()) {}
    std::uint64_t seed;
    std::size_t operator()(std::string_view key) const noexcept {
      return catalog::hash_name(key, seed);
    }
  };
  std::unordered_map<std::string_view, std::uint32_t, KeyHash> by_text_;
  // True while each key was the number of storages before it; by_number_ is then empty.
  bool is_counted_ = true;
  std::uint64_t cache_hits_ = 0;
  std::uint64_t key_bytes_ = 0;
};

}  // namespace weightmap::torch
