#include "runtime/checkpoint/tensor_table.hpp"

#include <new>
#include <utility>

#include "runtime/base/try.hpp"

namespace weightmap {

using catalog::Catalog;
using catalog::Entry;

LateTensors::LateTensors(format::LatePlaces places, std::size_t count)
    : places_(std::move(places)),
      no_memory_{ErrorCode::limit_exceeded,
                 "there is no memory left to read the place of the tensor",
                 Error::no_offset,
                 {}},
      proofs_(count) {}

LateTensors::~LateTensors() {
  for (const std::atomic<const Proof*>& proof : proofs_) delete proof.load();
  delete all_.load();
}

TensorPlace LateTensors::place_in(const Proof& proof) noexcept {
  if (!proof) return {nullptr, nullptr, &proof.error()};
  return {&*proof, &(*proof)[0], nullptr};
}

TensorPlace LateTensors::known(std::size_t index) const noexcept {
  if (const Catalog* const all = all_.load(std::memory_order_acquire))
    return {all, &(*all)[index], nullptr};
  const Proof* const proof = proofs_[index].load(std::memory_order_acquire);
  return proof == nullptr ? TensorPlace() : place_in(*proof);
}

TensorPlace LateTensors::prove(std::size_t index) noexcept {
  const TensorPlace place = known(index);
  if (place.entry != nullptr || place.fault != nullptr) return place;
  try {
    return place_in(read(index));
  } catch (const std::bad_alloc&) {
    return {nullptr, nullptr, &no_memory_};
  }
}

const LateTensors::Proof& LateTensors::read(std::size_t index) {
  auto made = std::make_unique<const Proof>(places_.read(index));
  const Proof* first = nullptr;
  if (proofs_[index].compare_exchange_strong(first, made.get(), std::memory_order_acq_rel))
    first = made.release();
  return *first;
}

Result<const Catalog*> LateTensors::prove_all() {
  if (const Catalog* const all = all_.load(std::memory_order_acquire)) return all;
  TRY_ASSIGN(Catalog read, places_.read_all());
  auto made = std::make_unique<const Catalog>(std::move(read));
  const Catalog* first = nullptr;
  if (all_.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel))
    first = made.release();
  return first;
}

TensorTable::TensorTable(Catalog catalog, std::optional<format::LatePlaces> late)
    : catalog_(std::move(catalog)),
      late_(late ? std::make_unique<LateTensors>(std::move(*late), catalog_.size()) : nullptr) {}

TensorTable::StoragePlace TensorTable::storage(std::size_t index) const noexcept {
  if (late_ == nullptr) return {&catalog_.storages()[index], nullptr};
  const TensorPlace place = late_->prove(index);
  if (place.fault != nullptr) return {nullptr, place.fault};
  return {&place.storage(), nullptr};
}

std::optional<std::size_t> TensorTable::find_at(std::uint64_t position) const noexcept {
  for (std::size_t i = 0; i < catalog_.size(); ++i) {
    const Entry* const entry = known(i);
    if (entry != nullptr && position >= entry->position &&
        position - entry->position < entry->extent)
      return i;
  }
  return std::nullopt;
}

}  // namespace weightmap
