// Which catalog a checkpoint uses: its own once it has one, until then another process's, of which
// every part is checked before it is used.
#include <new>
#include <utility>

#include "runtime/checkpoint/opener.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/shared_catalog/publish_catalog.hpp"

namespace weightmap {

using catalog::Catalog;

const Parsed* Checkpoint::State::own() noexcept {
  if (const Parsed* ready = own_if_any()) return ready;
  const std::lock_guard lock(own_mutex_);
  if (own_error_) return nullptr;
  if (const Parsed* ready = own_if_any()) return ready;
  try {
    OpenStats not_of_the_open;
    Result<void> parsed_now = Opener(*this, options, not_of_the_open).parse();
    if (parsed_now) parsed_now = file.check_unchanged();  // what is mapped is what was parsed
    if (!parsed_now) own_error_ = std::move(parsed_now.error());
  } catch (const std::bad_alloc&) {
    own_error_ = Error{ErrorCode::io, "out of memory", Error::no_offset, {}};  // allocates nothing
  }
  parsed.memory.trim();
  if (own_error_) {
    try {
      own_error_->file = file_name;
    } catch (const std::bad_alloc&) {
      // It is said without the name.
    }
    return nullptr;
  }
  set_own();
  return &parsed;
}

Error Checkpoint::State::own_error() {
  const std::lock_guard lock(own_mutex_);
  return own_error_.value_or(Error{});
}

const Catalog* Checkpoint::State::heal() noexcept {
  const bool is_first = !damaged_.exchange(true);
  const Parsed* const ready = own();
  if (is_first && attached->is_file) replace_damaged_catalog(*this);
  return ready ? &ready->catalog : nullptr;
}

Checkpoint::State::Place Checkpoint::State::find_attached(std::string_view name) noexcept {
  catalog::Published& published = attached->published;
  if (const std::optional<std::uint32_t> index = published.find(name))
    return {&published.catalog(), *index};
  const Catalog* const healed = heal();
  return healed ? Place{healed, healed->find(name)} : Place{};
}

const Catalog* Checkpoint::State::with_entry(std::size_t index) noexcept {
  const Parsed* const ready = own_if_any();
  if (ready == nullptr && attached->published.check_entry(index))
    return &attached->published.catalog();
  const Catalog* const catalog = ready ? &ready->catalog : heal();
  return catalog && index < catalog->size() ? catalog : nullptr;
}

const Catalog* Checkpoint::State::with_storage(std::size_t index) noexcept {
  const Parsed* const ready = own_if_any();
  if (ready == nullptr && attached->published.check_storage(index))
    return &attached->published.catalog();
  const Catalog* const catalog = ready ? &ready->catalog : heal();
  return catalog && index < catalog->storages().size() ? catalog : nullptr;
}

Result<const Catalog*> Checkpoint::State::whole() {
  if (const Parsed* ready = own_if_any()) return &ready->catalog;
  if (attached->published.check_all()) return &attached->published.catalog();
  if (const Catalog* healed = heal()) return healed;
  return tl::unexpected<Error>(own_error());
}

bool Checkpoint::catalog_was_damaged() const noexcept { return state_->was_damaged(); }

}  // namespace weightmap
