// Which catalog a checkpoint uses: its own once it has one; until then another process's, each part
// of which is checked before it is used.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string_view>

#include "mmap/memory/huge_pages.hpp"
#include "mmap/process/fork_safe.hpp"
#include "runtime/catalog/catalog.hpp"
#include "runtime/format/format.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// A catalog that another process made. May be called from any thread.
class ForeignCatalog {
 public:
  virtual ~ForeignCatalog() = default;
  // Unchecked, but for its counts.
  virtual const catalog::Catalog& catalog() const noexcept = 0;
  // Catalog::find() of checked slots; of the entry only the name, the view and the flags are
  // checked. nullopt: something on the way is damaged.
  virtual std::optional<std::uint32_t> find(std::string_view name) noexcept = 0;
  // Whether all that an entry or a storage says may be used. False also beyond the last one.
  virtual bool check_entry(std::size_t index) noexcept = 0;
  virtual bool check_storage(std::size_t index) noexcept = 0;
  virtual bool check_all() noexcept = 0;
  // It was found damaged, and the checkpoint parses on its own. Called once, after that.
  virtual void was_damaged() noexcept = 0;
};

// A catalog of this checkpoint's own, with all that the parse gave.
struct OwnCatalog {
  os::HugePageResource memory;
  format::Parsed parsed{memory};
};

// All members may be called from any thread once one of the set functions was called, and in a
// child that was forked at any moment. Of threads that need a parse at the same time one parses.
class CatalogInUse {
 public:
  // `parse` parses the file; called where a foreign catalog does not serve.
  using Parse = std::function<Result<std::unique_ptr<OwnCatalog>>()>;
  explicit CatalogInUse(Parse parse) : parse_(std::move(parse)) {}
  CatalogInUse(const CatalogInUse&) = delete;
  CatalogInUse& operator=(const CatalogInUse&) = delete;
  ~CatalogInUse();

  // One of these, by the open, before anybody else uses this.
  void set_own(std::unique_ptr<OwnCatalog> own) noexcept { keep(std::move(own)); }
  void set_foreign(std::unique_ptr<ForeignCatalog> foreign) noexcept {
    foreign_ = std::move(foreign);
  }
  bool has_foreign() const noexcept { return foreign_ != nullptr; }

  // Its own, if there is one by now.
  const format::Parsed* own_if_any() const noexcept {
    const OwnCatalog* const own = own_.load(std::memory_order_acquire);
    return own ? &own->parsed : nullptr;
  }
  // Its own; parses where there is none yet. From then on every call goes there. nullptr if that
  // failed, once and for all: own_error() says why.
  const format::Parsed* own() noexcept;
  Error own_error() const;

  // A tensor of a catalog. Catalog::none with a catalog: there is no such tensor; without: the
  // catalog is damaged and the file cannot be parsed.
  struct Place {
    const catalog::Catalog* catalog = nullptr;
    std::uint32_t index = catalog::Catalog::none;
    bool is_found() const noexcept { return index != catalog::Catalog::none; }
    const catalog::Entry& entry() const noexcept { return (*catalog)[index]; }
  };
  // By name. No allocation, lock or system call but where a foreign catalog is damaged. Of a
  // foreign one only the view and the flags of the entry may be used.
  Place find(std::string_view name) noexcept {
    if (const format::Parsed* own = own_if_any()) return {&own->catalog, own->catalog.find(name)};
    return find_foreign(name);
  }
  // All of the entry may be used.
  Place find_entry(std::string_view name) noexcept;
  // The catalog in which entry or storage `index` may be used, nullptr if there is none.
  const catalog::Catalog* with_entry(std::size_t index) noexcept;
  const catalog::Catalog* with_storage(std::size_t index) noexcept;
  // The same without a parse, so also in a signal handler: nullptr where the entry is damaged.
  const catalog::Catalog* with_sound_entry(std::size_t index) const noexcept {
    if (const format::Parsed* own = own_if_any()) return &own->catalog;
    return foreign_->check_entry(index) ? &foreign_->catalog() : nullptr;
  }
  // The catalog, all of which may be used.
  Result<const catalog::Catalog*> whole();
  // The catalog to be asked for its counts only.
  const catalog::Catalog& counts() const noexcept {
    const format::Parsed* own = own_if_any();
    return own ? own->catalog : foreign_->catalog();
  }
  bool was_damaged() const noexcept { return damaged_.load(std::memory_order_relaxed); }

 private:
  Place find_foreign(std::string_view name) noexcept;
  // own(), after the foreign catalog was found damaged.
  const catalog::Catalog* heal() noexcept;
  void keep(std::unique_ptr<OwnCatalog> own) noexcept;
  void keep(Error error) noexcept;

  Parse parse_;
  os::ForkSafeMutex parsing_;
  std::unique_ptr<ForeignCatalog> foreign_;  // stays for what was handed out
  // Each set at most once, and owned.
  std::atomic<const OwnCatalog*> own_{nullptr};
  std::atomic<const Error*> error_{nullptr};
  std::atomic<bool> failed_{false};  // also where there was no memory for the error
  std::atomic<bool> damaged_{false};
};

}  // namespace weightmap
