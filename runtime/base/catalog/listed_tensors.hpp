// What a catalog says of tensors without saying where their bytes lie, for those whose places are
// not proven yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/catalog/catalog.hpp"
#include "weightmap/dtype.hpp"

namespace weightmap::catalog {

// Borrows the catalog. The members are those of Catalog and Entry.
class ListedTensors {
 public:
  explicit ListedTensors(const Catalog& catalog) noexcept : catalog_(catalog) {}

  std::size_t size() const noexcept { return catalog_.size(); }
  std::size_t storage_count() const noexcept { return catalog_.storages().size(); }
  std::uint64_t tensor_bytes() const noexcept { return catalog_.tensor_bytes(); }
  std::uint32_t find(std::string_view name) const noexcept { return catalog_.find(name); }

  std::string_view name(std::size_t index) const noexcept { return catalog_.name(catalog_[index]); }
  DType dtype(std::size_t index) const noexcept { return catalog_[index].dtype; }
  std::span<const std::int64_t> sizes(std::size_t index) const noexcept {
    const Entry& entry = catalog_[index];
    return {catalog_.dims(entry), entry.rank};
  }
  // With row-major strides behind them, where the place is not proven.
  const std::int64_t* dims(std::size_t index) const noexcept {
    return catalog_.dims(catalog_[index]);
  }
  bool has(std::size_t index, Entry::Flag flag) const noexcept {
    return (catalog_[index].flags & flag) != 0;
  }
  std::string_view location(std::size_t index) const noexcept {
    return catalog_.location(catalog_[index]);
  }
  std::uint32_t storage(std::size_t index) const noexcept { return catalog_[index].storage; }
  // Of a storage.
  std::string_view key(std::size_t storage) const noexcept {
    return catalog_.text(catalog_.storages()[storage].key);
  }
  std::uint32_t source(std::size_t storage) const noexcept {
    return catalog_.storages()[storage].source;
  }

  std::size_t path_length(std::size_t index) const noexcept {
    return catalog_.path_length(catalog_[index]);
  }
  template <class Visit>
  void visit_path(std::size_t index, Visit visit) const {
    catalog_.visit_path(catalog_[index], visit);
  }

 private:
  const Catalog& catalog_;
};

}  // namespace weightmap::catalog
