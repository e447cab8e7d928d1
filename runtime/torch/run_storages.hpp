// The storages of a StorageRun, entered into a catalog as a pickle refers to them: 0, 1, 2, ...
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "runtime/bytes/decimal.hpp"
#include "runtime/catalog/builder.hpp"
#include "runtime/zip/storage_run.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

class RunStorages {
 public:
  // Both must outlive this object; `memory` is where it keeps two bytes for each storage.
  RunStorages(const zip::StorageRun& run, std::pmr::memory_resource& memory)
      : run_(run), references_(&memory) {}

  std::uint32_t run_count() const noexcept { return run_.count(); }
  // Both before any storage is entered: takes the memory, and tells where. `builder` must outlive
  // this object.
  void reserve() { references_.reserve(run_.count()); }
  void enter_into(catalog::CatalogBuilder& builder) noexcept { builder_ = &builder; }
  std::uint32_t count() const noexcept { return count_; }
  bool has_all() const noexcept { return count() == run_.count(); }
  std::uint64_t cache_hits() const noexcept { return cache_hits_; }

  // Enters the storage whose number is how many there are so far. False if `key` is not that
  // number, or if its record is not as StorageRequest says.
  bool add_next(std::string_view key, std::uint64_t nbytes, DType dtype,
                std::uint8_t element_size) {
    return bytes::decimal(key) == count_ && add(key, nbytes, dtype, element_size);
  }
  // As StorageTable::intern(). Fails wherever the long way has to say what is there, with an error
  // that says nothing.
  Result<std::uint32_t> intern(std::string_view key, std::int64_t numel, DType dtype);

 private:
  // What the first reference to a storage says and its entry does not.
  struct Reference {
    DType dtype;
    std::uint8_t spare_bytes;  // of the record, behind the last element
  };

  bool add(std::string_view key, std::uint64_t nbytes, DType dtype, std::uint8_t element_size) {
    const std::uint32_t number = count();
    zip::StorageExtent extent;
    if (number == run_.count() || !run_.place(number, nbytes, element_size, extent)) return false;
    builder_->add_storage(key, extent.payload_offset, extent.nbytes, extent.crc32);
    references_.push_back({dtype, static_cast<std::uint8_t>(extent.nbytes - nbytes)});
    ++count_;
    return true;
  }

  const zip::StorageRun& run_;
  catalog::CatalogBuilder* builder_ = nullptr;
  std::pmr::vector<Reference> references_;  // by number
  std::uint32_t count_ = 0;
  std::uint64_t cache_hits_ = 0;
};

}  // namespace weightmap::torch
