#include "runtime/checkpoint/catalog_in_use.hpp"

#include <new>
#include <utility>

namespace weightmap {

using catalog::Catalog;
using format::Parsed;

CatalogInUse::~CatalogInUse() {
  delete own_.load();
  delete error_.load();
}

void CatalogInUse::keep(std::unique_ptr<OwnCatalog> own) noexcept {
  const OwnCatalog* none = nullptr;
  if (own_.compare_exchange_strong(none, own.get(), std::memory_order_acq_rel))
    static_cast<void>(own.release());
}

void CatalogInUse::keep(Error error) noexcept {
  const Error* const kept = new (std::nothrow) Error(std::move(error));
  const Error* none = nullptr;
  if (!error_.compare_exchange_strong(none, kept, std::memory_order_acq_rel)) delete kept;
  failed_ = true;
}

const Parsed* CatalogInUse::own() noexcept {
  if (const Parsed* const ready = own_if_any()) return ready;
  const os::ForkSafeMutex::Lock lock(parsing_);
  if (const Parsed* const ready = own_if_any()) return ready;
  if (failed_) return nullptr;
  try {
    Result<std::unique_ptr<OwnCatalog>> parsed = parse_();
    if (parsed)
      keep(std::move(*parsed));
    else
      keep(std::move(parsed.error()));
  } catch (const std::bad_alloc&) {
    keep(Error{ErrorCode::io, "out of memory", Error::no_offset, {}});  // allocates no text
  }
  return own_if_any();
}

Error CatalogInUse::own_error() const {
  const Error* const error = error_.load(std::memory_order_acquire);
  return error ? *error : Error{ErrorCode::io, "out of memory", Error::no_offset, {}};
}

const Catalog* CatalogInUse::heal() noexcept {
  const bool is_first = !damaged_.exchange(true);
  const Parsed* const ready = own();
  if (is_first) foreign_->was_damaged();
  return ready ? &ready->catalog : nullptr;
}

CatalogInUse::Place CatalogInUse::find_foreign(std::string_view name) noexcept {
  if (const std::optional<std::uint32_t> index = foreign_->find(name))
    return {&foreign_->catalog(), *index};
  const Catalog* const healed = heal();
  return healed ? Place{healed, healed->find(name)} : Place{};
}

CatalogInUse::Place CatalogInUse::find_entry(std::string_view name) noexcept {
  const Place place = find(name);
  const Catalog* const checked = place.is_found() ? with_entry(place.index) : place.catalog;
  if (checked == place.catalog) return place;
  return checked ? Place{checked, checked->find(name)} : Place{};
}

const Catalog* CatalogInUse::with_entry(std::size_t index) noexcept {
  const Parsed* const ready = own_if_any();
  if (ready == nullptr && foreign_->check_entry(index)) return &foreign_->catalog();
  const Catalog* const catalog = ready ? &ready->catalog : heal();
  return catalog && index < catalog->size() ? catalog : nullptr;
}

const Catalog* CatalogInUse::with_storage(std::size_t index) noexcept {
  const Parsed* const ready = own_if_any();
  if (ready == nullptr && foreign_->check_storage(index)) return &foreign_->catalog();
  const Catalog* const catalog = ready ? &ready->catalog : heal();
  return catalog && index < catalog->storages().size() ? catalog : nullptr;
}

Result<const Catalog*> CatalogInUse::whole() {
  if (const Parsed* ready = own_if_any()) return &ready->catalog;
  if (foreign_->check_all()) return &foreign_->catalog();
  if (const Catalog* healed = heal()) return healed;
  return tl::unexpected<Error>(own_error());
}

}  // namespace weightmap
