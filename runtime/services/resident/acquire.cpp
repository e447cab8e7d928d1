#include "runtime/services/resident/acquire.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"

namespace weightmap {
namespace {

// A hundred years, so that the end of a wait fits the clock.
constexpr std::uint64_t longest_wait_ms = std::uint64_t{100} * 366 * 24 * 3600 * 1000;

bool contains_unit(const std::vector<std::uint32_t>& units, std::uint32_t unit) {
  return std::ranges::binary_search(units, unit);
}

}  // namespace

Acquiring::Acquiring(ResidentSet::State& set, std::span<const std::size_t> units)
    : set_(set), units_(units) {
  for (const std::size_t unit : units) once_.push_back(static_cast<std::uint32_t>(unit));
  std::ranges::sort(once_);
  once_.erase(std::unique(once_.begin(), once_.end()), once_.end());
}

Acquiring::~Acquiring() {
  if (is_held_ && !is_kept_) let_go();
  const auto waited = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_);
  const ResidentTable::Lock lock(set_.table());
  set_.table().counters().waited_ns += static_cast<std::uint64_t>(waited.count());
  if (waits_for_room_) --set_.table().waiting_for_room(set_.memory->member());
}

bool Acquiring::is_in_mapping(std::uint32_t unit) const { return contains_unit(in_mapping_, unit); }

Result<void> Acquiring::run() {
  find_in_mapping();
  TRY(check_room());
  TRY(map_rest());
  // What another process reads for both may fail there, and be read here then.
  for (;;) {
    TRY(hold_slots());
    TRY_ASSIGN(const bool are_there, wait_for_slots());
    if (are_there) return {};
    let_go();
  }
}

// Units that are in no slot and in the page cache are used there; what all fits into, too.
void Acquiring::find_in_mapping() {
  std::vector<std::uint32_t> absent;
  {
    const ResidentTable::Lock lock(set_.table());
    for (const std::uint32_t unit : once_)
      (set_.table().state(unit) == UnitState::absent ? absent : in_slots_).push_back(unit);
  }
  const SourceFile* unchanged = nullptr;
  for (const std::uint32_t unit : absent) {
    if (set_.use_mapping(unit, unchanged)) {
      in_mapping_.push_back(unit);
    } else if (set_.all_fit() && set_.placed[unit].can_be_mapped) {
      in_mapping_.push_back(unit);
      loads_.push_back(set_.make_read(unit, ReadTarget::page_cache));
    } else {
      in_slots_.push_back(unit);
    }
  }
  std::ranges::sort(in_slots_);
}

Result<void> Acquiring::check_room() const {
  std::uint64_t bytes = 0;
  for (const std::uint32_t unit : in_slots_) bytes += set_.plan.slot_bytes(unit);
  set_.follow_memory(bytes);
  bytes = 0;
  for (const std::uint32_t unit : in_slots_) {
    bytes += set_.plan.slot_bytes(unit);
    if (bytes <= set_.table().budget_bytes()) continue;
    return failure(ErrorCode::limit_exceeded,
                   "unit " + bytes::quote(set_.units[unit].name) + ": the units of one call need " +
                       std::to_string(bytes) + " bytes with it, above the budget of " +
                       std::to_string(set_.table().budget_bytes()));
  }
  return {};
}

// Brings into the page cache, and into the page table, what is to be used there.
Result<void> Acquiring::map_rest() {
  for (const auto& load : loads_) set_.reads->add(load);
  for (const auto& load : loads_) {
    while (!load->is_done) {
      const std::uint32_t seen = set_.table().changes();
      if (!load->is_done) set_.wait(seen);
    }
    if (load->has_failed()) return tl::unexpected<Error>(set_.about(load->unit, *load->error));
    const SourceFile* unchanged = nullptr;  // asked after each read
    set_.use_mapping(load->unit, unchanged);
  }
  return {};
}

// All of them or none, so that no two calls wait for one another.
Result<void> Acquiring::hold_slots() {
  const auto end =
      begin_ + std::chrono::milliseconds(std::min(set_.options.wait_ms, longest_wait_ms));
  for (;;) {
    std::uint32_t seen = 0;
    std::vector<std::uint32_t> missing;
    if (try_to_hold(seen, missing)) {
      start_reads(missing);
      return {};
    }
    if (give_up_reads_ahead()) continue;
    if (!will_fit_ && Clock::now() >= end) return no_room();
    set_.wait(seen);
  }
}

// True if that has changed anything. What this call or another one waits for is not given up.
bool Acquiring::give_up_reads_ahead() {
  return set_.reads->give_up([this](std::uint32_t unit) {
    const ResidentTable::Lock lock(set_.table());
    return !contains_unit(in_slots_, unit) && !set_.table().is_pinned(unit);
  });
}

bool Acquiring::try_to_hold(std::uint32_t& seen, std::vector<std::uint32_t>& missing) {
  ResidentTable& table = set_.table();
  const ResidentTable::Lock lock(table);
  seen = table.changes();
  // First, so that none of this call makes room for another one of it.
  for (const std::size_t unit : units_)
    if (!is_in_mapping(static_cast<std::uint32_t>(unit)))
      table.pin(static_cast<std::uint32_t>(unit), set_.memory->member());
  is_held_ = true;
  for (const std::uint32_t unit : in_slots_)
    if (table.state(unit) == UnitState::absent) missing.push_back(unit);
  if (!table.reserve(missing, set_.memory->member())) {
    will_fit_ = table.will_fit(missing);
    if (!std::exchange(waits_for_room_, true)) ++table.waiting_for_room(set_.memory->member());
    for (const std::size_t unit : units_)
      if (!is_in_mapping(static_cast<std::uint32_t>(unit)))
        table.unpin(static_cast<std::uint32_t>(unit), set_.memory->member());
    seen = table.changes();
    is_held_ = false;
    return false;
  }
  if (std::exchange(is_counted_, true)) return true;
  const std::uint64_t now = table.next_time();
  for (const std::uint32_t unit : once_) {
    const bool is_missing = contains_unit(missing, unit);
    const bool is_loaded =
        std::ranges::any_of(loads_, [unit](const auto& load) { return load->unit == unit; });
    table.use(unit, now, !is_missing && !is_loaded);
    if (is_missing || is_loaded) table.counters().missed_bytes += set_.placed[unit].bytes;
  }
  return true;
}

void Acquiring::start_reads(const std::vector<std::uint32_t>& missing) {
  std::size_t begun = 0;
  try {
    for (; begun < missing.size(); ++begun)
      set_.begin(set_.make_read(missing[begun], ReadTarget::slot));
  } catch (...) {  // no memory: nobody would read the others
    const ResidentTable::Lock lock(set_.table());
    for (; begun < missing.size(); ++begun) set_.table().finish(missing[begun], false);
    throw;
  }
  for (const std::uint32_t unit : in_slots_)
    if (!contains_unit(missing, unit)) set_.forget_failure(unit);  // others read it now
}

// False if a unit is not there that another process was to read.
Result<bool> Acquiring::wait_for_slots() {
  for (;;) {
    std::uint32_t seen = 0;
    bool are_there = true;
    std::vector<std::uint32_t> failed;
    {
      const ResidentTable::Lock lock(set_.table());
      seen = set_.table().changes();
      for (const std::uint32_t unit : in_slots_) {
        are_there &= set_.table().state(unit) == UnitState::resident;
        if (set_.table().state(unit) == UnitState::absent) failed.push_back(unit);
      }
    }
    if (are_there) return true;
    for (const std::uint32_t unit : failed) TRY(error_of(unit));
    if (!failed.empty()) return false;
    set_.reads->want(in_slots_);  // each time: a read ahead may have begun between the two
    set_.wait(seen);
  }
}

// Of a read of this process.
Result<void> Acquiring::error_of(std::uint32_t unit) {
  std::shared_ptr<UnitRead> read;
  {
    const std::scoped_lock lock(set_.mutex);
    const auto found = set_.reading.find(unit);
    if (found == set_.reading.end() || !found->second) return {};
    read = found->second;
  }
  const std::scoped_lock lock(read->mutex);
  if (!read->error) return {};
  return tl::unexpected<Error>(set_.about(unit, *read->error));
}

tl::unexpected<Error> Acquiring::no_room() const {
  std::uint64_t bytes = 0;
  for (const std::uint32_t unit : in_slots_) bytes += set_.plan.slot_bytes(unit);
  return failure(ErrorCode::limit_exceeded,
                 "unit " + bytes::quote(set_.units[in_slots_.front()].name) + " and " +
                     std::to_string(in_slots_.size() - 1) + " others need " +
                     std::to_string(bytes) + " bytes, which leases of other calls have left free " +
                     "of the budget of " + std::to_string(set_.table().budget_bytes()) +
                     " at no time in " + std::to_string(set_.options.wait_ms) + " ms");
}

void Acquiring::let_go() noexcept {
  {
    const ResidentTable::Lock lock(set_.table());
    for (const std::size_t unit : units_)
      if (!is_in_mapping(static_cast<std::uint32_t>(unit)))
        set_.table().unpin(static_cast<std::uint32_t>(unit), set_.memory->member());
    is_held_ = false;
  }
  set_.wake();
}

}  // namespace weightmap
