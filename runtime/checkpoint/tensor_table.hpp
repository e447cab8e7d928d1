// The tensors of an open checkpoint. Their names, types and shapes are known from the open on. So
// are their places in most formats; those of format::LatePlaces are read and proven one by one,
// when they are first asked for, or all at once. at(), storage() and all() are the only ways to a
// place, and give none that is not proven.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/catalog/catalog.hpp"
#include "runtime/base/catalog/listed_tensors.hpp"
#include "runtime/formats/format/format.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// The entry of a tensor in the catalog that has its place; or, without one, the reason.
struct TensorPlace {
  const catalog::Catalog* catalog = nullptr;
  const catalog::Entry* entry = nullptr;
  const Error* fault = nullptr;  // lives as long as the table

  // Precondition: there is an entry.
  const catalog::StorageEntry& storage() const noexcept {
    return catalog->storages()[entry->storage];
  }
};

// Places that are proven late. No lock is held while one is read, which a fork could leave locked:
// threads that ask for the same one at once each read it, and get what the first has read.
class LateTensors {
 public:
  LateTensors(format::LatePlaces places, std::size_t count);
  LateTensors(const LateTensors&) = delete;
  ~LateTensors();

  // Returns what the catalog of all, or of this one alone, has; or why that has no place.
  TensorPlace prove(std::size_t index) noexcept;
  // The same without reading anything: neither an entry nor a fault if it was not proven yet.
  // Signal-safe.
  TensorPlace known(std::size_t index) const noexcept;
  Result<const catalog::Catalog*> prove_all();

 private:
  using Proof = Result<catalog::Catalog>;  // of one tensor

  const Proof& read(std::size_t index);
  static TensorPlace place_in(const Proof& proof) noexcept;

  const format::LatePlaces places_;
  const Error no_memory_;
  // Owned; each is set once, by any thread.
  std::vector<std::atomic<const Proof*>> proofs_;
  std::atomic<const catalog::Catalog*> all_{nullptr};
};

// Const members may be called from any thread, and in a child after a fork.
class TensorTable {
 public:
  TensorTable() = default;  // without tensors
  // `late`: the places in `catalog` are none, and these are read when they are needed.
  TensorTable(catalog::Catalog catalog, std::optional<format::LatePlaces> late);

  catalog::ListedTensors listed() const noexcept { return catalog::ListedTensors(catalog_); }
  TensorPlace at(std::size_t index) const noexcept {
    if (late_ == nullptr) [[likely]]
      return {&catalog_, &catalog_[index], nullptr};
    return late_->prove(index);
  }
  // nullptr and the reason if it has no place. Of late tensors each has a storage of its own.
  struct StoragePlace {
    const catalog::StorageEntry* storage;
    const Error* fault;
  };
  StoragePlace storage(std::size_t index) const noexcept;
  // The catalog of all tensors. Fails with the first fault in the order of the files.
  Result<const catalog::Catalog*> all() const {
    if (late_ == nullptr) return &catalog_;
    return late_->prove_all();
  }
  bool is_late() const noexcept { return late_ != nullptr; }
  // The entry of a tensor whose place is known by now; nullptr for another one. Signal-safe.
  const catalog::Entry* known(std::size_t index) const noexcept {
    return late_ == nullptr ? &catalog_[index] : late_->known(index).entry;
  }
  // The first known tensor that has the byte at `position`. Signal-safe.
  std::optional<std::size_t> find_at(std::uint64_t position) const noexcept;

 private:
  catalog::Catalog catalog_;
  std::unique_ptr<LateTensors> late_;
};

}  // namespace weightmap
