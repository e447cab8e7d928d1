#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "mmap/pages/page_cache.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/resident/acquire.hpp"
#include "runtime/services/resident/resident_state.hpp"
#include "runtime/system/process/fork_safe.hpp"
#include "weightmap/on_demand.hpp"

namespace weightmap {
namespace {

constexpr std::uint64_t most_slot_addresses = std::uint64_t{1} << 62;  // in bytes

Result<void> check_units(const std::vector<Unit>& units) {
  if (units.empty()) return failure(ErrorCode::invalid_argument, "there are no units");
  std::set<std::string_view> names;
  for (const Unit& unit : units)
    if (!names.insert(unit.name).second)
      return failure(ErrorCode::invalid_argument,
                     "two units are called " + bytes::quote(unit.name));
  if (units.size() < ~std::uint32_t{0}) return {};
  return failure(ErrorCode::limit_exceeded, "there are more than 4 billion units");
}

Result<void> check_budget(const std::vector<Unit>& units, const std::vector<PlacedUnit>& placed,
                          std::uint64_t budget_bytes) {
  std::uint64_t all = 0;
  for (const PlacedUnit& unit : placed)
    if (!bytes::checked_add(all, unit.slot_bytes, &all) || all > most_slot_addresses)
      return failure(ErrorCode::limit_exceeded, "all units together have more than 2^62 bytes");
  const auto largest = std::ranges::max_element(placed, {}, &PlacedUnit::slot_bytes);
  if (budget_bytes == 0 || largest->slot_bytes <= budget_bytes) return {};
  return failure(ErrorCode::limit_exceeded,
                 "unit " +
                     bytes::quote(units[static_cast<std::size_t>(largest - placed.begin())].name) +
                     " needs " + std::to_string(largest->slot_bytes) +
                     " bytes, above the budget of " + std::to_string(budget_bytes));
}

// What of parts is cached. Asks once for each file.
class FilePages {
 public:
  Result<std::uint64_t> cached_bytes(const SourceFile& source, const PlacedPart& part) {
    if (source.file.is_in_memory()) return part.bytes;  // needs no read either
    auto found = of_.find(&source);
    if (found == of_.end()) {
      Result<mmap::CachedPages> pages = mmap::CachedPages::of(source.file);
      if (!pages) return tl::unexpected<Error>(source.about(std::move(pages.error())));
      found = of_.emplace(&source, std::move(*pages)).first;
    }
    return found->second.cached_bytes(part.position - source.base(), part.bytes);
  }

 private:
  std::map<const SourceFile*, mmap::CachedPages> of_;
};

// The header cannot know the state.
ResidentSet::State& state_of(const void* set) noexcept {
  return *static_cast<ResidentSet::State*>(const_cast<void*>(set));
}

}  // namespace

void Lease::end() noexcept {
  ResidentSet::State& set = state_of(set_);
  if (is_mapped() || set.is_of_parent()) return;
  {
    const ResidentTable::Lock lock(set.table());
    set.table().unpin(static_cast<std::uint32_t>(unit_), set.memory->member());
  }
  set.wake();
}

std::span<const std::byte> Lease::part(std::size_t index) const noexcept {
  const ResidentSet::State& set = state_of(set_);
  const PlacedPart& part = set.placed[unit_].parts[index];
  const std::byte* const begin =
      is_mapped() ? set.checkpoint.mapping.bytes().data() + part.position : slot_ + part.in_slot;
  return {begin, part.bytes};
}

ResidentSet::ResidentSet(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
ResidentSet::ResidentSet(ResidentSet&&) noexcept = default;
ResidentSet& ResidentSet::operator=(ResidentSet&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

// A child has none of the threads, which could not be joined there, and leaves the table alone.
ResidentSet::~ResidentSet() {
  if (!state_) return;
  if (state_->is_of_parent())
    static_cast<void>(state_.release());
  else
    state_->pressure.reset();
}

Result<ResidentSet> ResidentSet::of(const Checkpoint& checkpoint, std::vector<Unit> units,
                                    const ResidentOptions& options) {
  const Checkpoint::State& opened = Checkpoint::Access::state(checkpoint);
  TRY(opened.check_view_memory());
  if (opened.info.writable)
    return failure(ErrorCode::invalid_argument,
                   "the checkpoint is writable, so that its bytes may change; open it to be read");
  TRY(check_units(units));
  std::vector<PlacedUnit> placed;
  for (const Unit& unit : units) {
    TRY_ASSIGN(PlacedUnit each, place_unit(checkpoint, unit));
    placed.push_back(std::move(each));
  }
  TRY(check_budget(units, placed, options.budget_bytes));
  os::count_forks();
  auto state = std::make_unique<State>(opened, std::move(units), std::move(placed), options);
  TRY(state->start());
  return ResidentSet(std::move(state));
}

const std::vector<Unit>& ResidentSet::units() const noexcept { return state_->units; }

std::optional<std::size_t> ResidentSet::find(std::string_view name) const noexcept {
  const auto found = state_->by_name.find(name);
  if (found == state_->by_name.end()) return std::nullopt;
  return found->second;
}

std::uint64_t ResidentSet::unit_bytes(std::size_t unit) const noexcept {
  return state_->placed[unit].bytes;
}

Result<std::vector<Lease>> ResidentSet::acquire(std::span<const std::size_t> units) const {
  State& set = *state_;
  if (set.is_of_parent())
    return failure(ErrorCode::unsupported,
                   "the set was made before this process was forked: its threads are the parent's; "
                   "make it in the child, with share=");
  for (const std::size_t unit : units)
    if (unit >= set.units.size())
      return failure(ErrorCode::invalid_argument, "there is no unit " + std::to_string(unit) +
                                                      " of " + std::to_string(set.units.size()));
  std::vector<Lease> leases;
  leases.reserve(units.size());
  const auto number = [](std::size_t unit) { return static_cast<std::uint32_t>(unit); };
  const auto lease_slot = [&](std::size_t unit) {
    leases.push_back(Lease(&set, unit, set.slot_of(number(unit))));
  };
  {
    const ResidentTable::Lock lock(set.table());
    const bool are_there = std::ranges::all_of(units, [&](std::size_t unit) {
      return set.table().state(number(unit)) == UnitState::resident;
    });
    if (are_there && !units.empty()) {
      const std::uint64_t now = set.table().next_time();
      for (const std::size_t unit : units) {
        set.table().pin(number(unit), set.memory->member());
        set.table().use(number(unit), now, true);
        lease_slot(unit);
      }
      return leases;
    }
  }
  Acquiring acquiring(set, units);
  TRY(acquiring.run());
  for (const std::size_t unit : units)
    if (acquiring.is_in_mapping(number(unit)))
      leases.push_back(Lease(&set, unit, nullptr));
    else
      lease_slot(unit);
  acquiring.keep();
  return leases;
}

void ResidentSet::prefetch(std::span<const std::size_t> units) const {
  if (state_->is_of_parent()) return;
  {
    const std::scoped_lock lock(state_->mutex);
    state_->to_prefetch.clear();
    for (const std::size_t unit : units)
      if (unit < state_->units.size())
        state_->to_prefetch.push_back(static_cast<std::uint32_t>(unit));
  }
  state_->reads->look_for_more();
}

ResidentStats ResidentSet::stats() const {
  ResidentStats stats;
  if (state_->is_of_parent()) return stats;
  stats.why_not_direct = state_->reads->why_not_direct();
  for (std::size_t unit = 0; unit < state_->units.size(); ++unit)
    stats.mapped_units += state_->cached_at[unit] != 0 ? 1 : 0;
  state_->memory->bury_the_dead();
  ResidentTable& table = state_->table();
  const ResidentTable::Lock lock(table);
  const ResidentTable::Counters& counters = table.counters();
  const ResidentTable::Count count = table.count();
  stats.budget_bytes = table.budget_bytes();
  stats.slot_bytes = table.used_bytes();
  stats.resident_units = count.resident;
  stats.leased_units = count.leased;
  stats.hits = counters.hits;
  stats.misses = counters.misses;
  stats.missed_bytes = counters.missed_bytes;
  stats.read_bytes = counters.read_bytes;
  stats.prefetched_units = counters.prefetched;
  stats.evicted_units = counters.evicted;
  stats.waited_ns = counters.waited_ns;
  stats.processes = table.members();
  return stats;
}

Result<std::uint64_t> ResidentSet::cached_bytes() const {
  if (state_->is_of_parent()) return 0;
  std::vector<const PlacedUnit*> absent;
  {
    const ResidentTable::Lock lock(state_->table());
    for (std::uint32_t unit = 0; unit < state_->units.size(); ++unit)
      if (state_->table().state(unit) == UnitState::absent) absent.push_back(&state_->placed[unit]);
  }
  FilePages pages;
  std::uint64_t bytes = 0;
  for (const PlacedUnit* unit : absent)
    for (const PlacedPart& part : unit->parts) {
      TRY_ASSIGN(const std::uint64_t cached,
                 pages.cached_bytes(state_->checkpoint.sources.at(part.position), part));
      bytes += cached;
    }
  return bytes;
}

std::vector<UnitHistory> ResidentSet::history() const {
  std::vector<UnitHistory> histories(state_->units.size());
  if (state_->is_of_parent()) return histories;
  const ResidentTable::Lock lock(state_->table());
  for (std::uint32_t unit = 0; unit < state_->units.size(); ++unit)
    histories[unit] = state_->table().history(unit);
  return histories;
}

}  // namespace weightmap
