#include "runtime/services/resident/resident_table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "runtime/base/bytes/round_up.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap {
namespace {

// Of an array behind `end` bytes.
template <class T>
std::uint64_t room_for(std::uint64_t& end, std::uint64_t count) noexcept {
  const std::uint64_t begin = bytes::round_up(end, alignof(std::max_align_t));
  end = begin + sizeof(T) * count;
  return begin;
}

}  // namespace

SlotPlan::SlotPlan(std::vector<std::uint64_t> slot_bytes, std::uint64_t most_bytes) {
  std::map<std::uint64_t, std::uint32_t> units_of;
  for (const std::uint64_t bytes : slot_bytes) {
    ++units_of[bytes];
    all_bytes_ += bytes;
  }
  for (const auto& [bytes, units] : units_of) {
    const auto count =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(units, most_bytes / bytes));
    sizes_.push_back({bytes, memory_bytes_, slots_, count});
    slots_ += count;
    memory_bytes_ = bytes::round_up(memory_bytes_ + count * bytes, os::large_page);
  }
  for (const std::uint64_t bytes : slot_bytes)
    size_of_.push_back(
        static_cast<std::uint32_t>(std::distance(units_of.begin(), units_of.find(bytes))));
}

const SlotPlan::Size& SlotPlan::size_of_slot(std::uint32_t slot) const noexcept {
  return *std::prev(std::ranges::upper_bound(sizes_, slot, {}, &Size::first_slot));
}

std::uint64_t SlotPlan::byte_of(std::uint32_t slot) const noexcept {
  const Size& size = size_of_slot(slot);
  return size.first_byte + (slot - size.first_slot) * size.slot_bytes;
}

ResidentTable::ResidentTable(std::span<std::byte> memory, const SlotPlan& plan,
                             const EvictionPolicy& policy, const mmap::SlotMemory& slots) noexcept
    : plan_(plan), policy_(policy), memory_(slots) {
  std::uint64_t end = 0;
  const auto at = [&memory](std::uint64_t place) { return static_cast<void*>(&memory[place]); };
  head_ = static_cast<Head*>(at(room_for<Head>(end, 1)));
  units_ = static_cast<UnitEntry*>(at(room_for<UnitEntry>(end, plan.units())));
  slots_ = static_cast<SlotEntry*>(at(room_for<SlotEntry>(end, plan.slots() + 1)));
  pins_ = static_cast<std::uint32_t*>(
      at(room_for<std::uint32_t>(end, std::uint64_t{most_members} * plan.units())));
}

std::uint64_t ResidentTable::bytes_for(const SlotPlan& plan) noexcept {
  std::uint64_t end = 0;
  room_for<Head>(end, 1);
  room_for<UnitEntry>(end, plan.units());
  room_for<SlotEntry>(end, plan.slots() + 1);
  room_for<std::uint32_t>(end, std::uint64_t{most_members} * plan.units());
  return os::whole_pages(end);
}

Result<void> ResidentTable::begin(os::SharedMutex::Users users, std::uint64_t budget_bytes) {
  head_->budget_bytes = budget_bytes;
  return head_->mutex.begin(users);
}

ResidentTable::Terms ResidentTable::terms_in(std::span<const std::byte> memory) noexcept {
  static_assert(offsetof(Head, terms) == 0);
  Terms terms;
  std::memcpy(&terms, memory.data(), sizeof terms);
  return terms;
}

unsigned ResidentTable::join(Member member) noexcept {
  for (unsigned number = 0; number < most_members; ++number) {
    if (head_->is_member[number]) continue;
    head_->is_member[number] = true;
    head_->members[number] = member;
    return number;
  }
  return most_members;
}

void ResidentTable::leave(unsigned member) noexcept {
  for (std::uint32_t unit = 0; unit < plan_.units(); ++unit) {
    units_[unit].pins -= std::exchange(pins_of(unit, member), 0);
    if (units_[unit].state == UnitState::being_read && units_[unit].reader == member)
      finish(unit, false);
  }
  head_->is_member[member] = false;
  head_->waiting_for_room[member] = 0;
  ++head_->changes;
}

unsigned ResidentTable::members() const noexcept {
  return static_cast<unsigned>(std::count(head_->is_member, head_->is_member + most_members, true));
}

std::uint64_t ResidentTable::byte_of(std::uint32_t unit) const noexcept {
  return plan_.byte_of(slot(unit));
}

void ResidentTable::pin(std::uint32_t unit, unsigned member) noexcept {
  ++units_[unit].pins;
  ++pins_of(unit, member);
}

void ResidentTable::unpin(std::uint32_t unit, unsigned member) noexcept {
  --pins_of(unit, member);
  if (--units_[unit].pins == 0) ++head_->changes;
}

void ResidentTable::use(std::uint32_t unit, std::uint64_t now, bool is_hit) noexcept {
  UnitHistory& history = units_[unit].history;
  if (history.last_used == now) return;  // of the same call
  history.last_used = now;
  ++history.uses;
  if (!is_hit) history.entered = now;
  if (is_hit)
    policy_.hit(history, now);
  else
    policy_.entered(history, now);
  ++(is_hit ? head_->counters.hits : head_->counters.misses);
}

bool ResidentTable::prefetch(std::uint32_t unit, unsigned member) {
  const auto waits = [](std::uint32_t calls) { return calls != 0; };
  if (std::ranges::any_of(head_->waiting_for_room, waits)) return false;
  if (!reserve(std::span(&unit, 1), member)) return false;
  UnitHistory& history = units_[unit].history;
  history.entered = head_->now;
  policy_.entered(history, head_->now);
  return true;
}

// Units in slots that nobody has or reads.
ResidentTable::Candidates ResidentTable::evictable() const {
  Candidates found;
  for (const SlotEntry& entry : std::span(slots_, plan_.slots())) {
    if (entry.unit_plus_one == 0) continue;
    const std::uint32_t number = entry.unit_plus_one - 1;
    if (units_[number].pins != 0 || units_[number].state != UnitState::resident) continue;
    found.units.push_back(number);
    found.histories.push_back(&units_[number].history);
    found.bytes += plan_.slot_bytes(number);
  }
  return found;
}

bool ResidentTable::reserve(std::span<const std::uint32_t> units, unsigned member) {
  if (units.empty()) return true;  // whatever the budget has become
  std::uint64_t need = 0;
  for (const std::uint32_t unit : units) need += plan_.slot_bytes(unit);
  const auto is_above = [&] { return head_->used_bytes + need > head_->budget_bytes; };
  if (is_above()) {
    Candidates candidates = evictable();
    if (head_->used_bytes + need - candidates.bytes > head_->budget_bytes) return false;
    while (is_above()) evict(candidates);
  }
  for (const std::uint32_t unit : units) take_slot(unit, member);
  trim();
  return true;
}

bool ResidentTable::will_fit(std::span<const std::uint32_t> units) const noexcept {
  std::uint64_t bytes = 0;
  for (const std::uint32_t unit : units) bytes += plan_.slot_bytes(unit);
  for (std::uint32_t unit = 0; unit < plan_.units(); ++unit)
    if (is_pinned(unit) && units_[unit].state != UnitState::absent) bytes += plan_.slot_bytes(unit);
  return bytes <= head_->budget_bytes;
}

void ResidentTable::evict(Candidates& candidates) noexcept {
  const std::size_t chosen = policy_.choose(candidates.histories, head_->now);
  free_slot(candidates.units[chosen]);
  candidates.units[chosen] = candidates.units.back();
  candidates.units.pop_back();
  candidates.histories[chosen] = candidates.histories.back();
  candidates.histories.pop_back();
  ++head_->counters.evicted;
}

// One that has memory, if there is one.
void ResidentTable::take_slot(std::uint32_t unit, unsigned member) noexcept {
  const SlotPlan::Size& size = plan_.sizes()[plan_.size_of(unit)];
  std::uint32_t taken = no_slot;
  for (std::uint32_t at = size.first_slot; at < size.first_slot + size.count; ++at) {
    if (slots_[at].unit_plus_one != 0) continue;
    if (taken == no_slot || slots_[at].has_memory) taken = at;
    if (slots_[at].has_memory) break;
  }
  slots_[taken].unit_plus_one = unit + 1;
  UnitEntry& entry = units_[unit];
  entry.slot_plus_one = taken + 1;
  entry.reader = static_cast<std::uint8_t>(member);
  std::atomic_signal_fence(std::memory_order_release);  // a process may be killed between the two
  entry.state = UnitState::being_read;
  head_->used_bytes += size.slot_bytes;
}

void ResidentTable::free_slot(std::uint32_t unit) noexcept {
  UnitEntry& entry = units_[unit];
  entry.state = UnitState::absent;
  slots_[slot(unit)].unit_plus_one = 0;
  entry.slot_plus_one = 0;
  head_->used_bytes -= plan_.slot_bytes(unit);
}

void ResidentTable::got_memory(std::uint32_t unit) noexcept {
  SlotEntry& entry = slots_[slot(unit)];
  if (!entry.has_memory) head_->memory_bytes += plan_.slot_bytes(unit);
  entry.has_memory = true;
}

void ResidentTable::finish(std::uint32_t unit, bool is_there) noexcept {
  if (is_there)
    units_[unit].state = UnitState::resident;
  else
    free_slot(unit);
  ++head_->changes;
}

void ResidentTable::set_budget(std::uint64_t bytes) {
  head_->budget_bytes = bytes;
  if (head_->used_bytes > bytes) {
    Candidates candidates = evictable();
    while (head_->used_bytes > bytes && !candidates.units.empty()) evict(candidates);
  }
  trim();
  ++head_->changes;
}

// Gives back memory of free slots, where other sizes are above the budget with theirs.
void ResidentTable::trim() noexcept {
  std::uint64_t unused = 0;  // slots that were taken and have no memory yet
  for (const SlotEntry& entry : std::span(slots_, plan_.slots()))
    if (entry.unit_plus_one != 0 && !entry.has_memory)
      unused += plan_.slot_bytes(entry.unit_plus_one - 1);
  for (std::uint32_t at = 0; at < plan_.slots(); ++at) {
    if (head_->memory_bytes + unused <= head_->budget_bytes) return;
    if (slots_[at].unit_plus_one != 0 || !slots_[at].has_memory) continue;
    const std::uint64_t bytes = plan_.size_of_slot(at).slot_bytes;
    memory_.give_back(plan_.byte_of(at), bytes);
    slots_[at].has_memory = false;
    head_->memory_bytes -= bytes;
  }
}

ResidentTable::Count ResidentTable::count() const noexcept {
  Count count{0, 0};
  for (const UnitEntry& unit : std::span(units_, plan_.units())) {
    count.resident += unit.state == UnitState::resident ? 1 : 0;
    count.leased += unit.pins != 0 ? 1 : 0;
  }
  return count;
}

// A process died with the lock: sums are formed again from what they are sums of, and a unit has a
// slot if both say so. What it had and was reading goes when its death is noticed.
void ResidentTable::repair() noexcept {
  for (std::uint32_t unit = 0; unit < plan_.units(); ++unit) {
    UnitEntry& entry = units_[unit];
    entry.pins = 0;
    for (unsigned member = 0; member < most_members; ++member) entry.pins += pins_of(unit, member);
    const bool has_slot = entry.slot_plus_one != 0 && entry.slot_plus_one <= plan_.slots() &&
                          slots_[slot(unit)].unit_plus_one == unit + 1;
    if (has_slot && entry.state != UnitState::absent) continue;
    entry.state = UnitState::absent;
    entry.slot_plus_one = 0;
  }
  head_->used_bytes = head_->memory_bytes = 0;
  for (std::uint32_t at = 0; at < plan_.slots(); ++at) {
    SlotEntry& entry = slots_[at];
    if (entry.unit_plus_one > plan_.units() ||
        (entry.unit_plus_one != 0 && units_[entry.unit_plus_one - 1].slot_plus_one != at + 1))
      entry.unit_plus_one = 0;
    const std::uint64_t bytes = plan_.size_of_slot(at).slot_bytes;
    if (entry.unit_plus_one != 0) head_->used_bytes += bytes;
    if (entry.has_memory) head_->memory_bytes += bytes;
  }
  ++head_->changes;
}

}  // namespace weightmap
