#include "runtime/services/resident/resident_state.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "mmap/page_loader.hpp"
#include "mmap/pages/page_cache.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/process/fork_safe.hpp"
#include "runtime/system/process/futex.hpp"
#include "runtime/system/process/runtime_directory.hpp"

namespace weightmap {
namespace {

// How long what was cached counts as cached.
constexpr std::uint32_t cached_for_ms = 1000;
// How long a wait goes on before it is asked whether those who are waited for are still alive.
constexpr std::chrono::milliseconds look_after{100};

std::vector<std::uint64_t> slot_bytes_of(const std::vector<PlacedUnit>& units) {
  std::vector<std::uint64_t> bytes;
  for (const PlacedUnit& unit : units) bytes.push_back(unit.slot_bytes);
  return bytes;
}

// Never 0.
std::uint32_t now_ms() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint32_t>(
             std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) |
         1u;
}

// The versions of the files and the units: who shares slots must mean the same bytes.
std::string terms_of(const Checkpoint::State& checkpoint, const std::vector<PlacedUnit>& placed,
                     const std::vector<Unit>& units) {
  std::string text;
  for (const SourceFile& source : checkpoint.sources.opened())
    text += os::key_of(source.file.generation()) + '\n';
  for (std::size_t i = 0; i < units.size(); ++i) {
    text += std::to_string(units[i].name.size()) + ' ' + units[i].name;
    for (const PlacedPart& part : placed[i].parts)
      for (const std::uint64_t number : {part.position, part.bytes, part.in_slot})
        text += ' ' + std::to_string(number);
    text += '\n';
  }
  return text;
}

}  // namespace

ResidentSet::State::State(const Checkpoint::State& opened, std::vector<Unit> named,
                          std::vector<PlacedUnit> all, const ResidentOptions& given)
    : checkpoint(opened),
      units(std::move(named)),
      placed(std::move(all)),
      options(given),
      policy(given.policy ? given.policy : eviction_policy("lru")),
      plan(slot_bytes_of(placed), given.budget_bytes != 0 ? given.budget_bytes : ~std::uint64_t{0}),
      forks(os::fork_count()),
      cached_at(std::make_unique<std::atomic<std::uint32_t>[]>(units.size())) {
  for (std::size_t i = 0; i < units.size(); ++i) by_name.emplace(units[i].name, i);
}

Result<void> ResidentSet::State::start() {
  const bool follows = options.budget_bytes == 0;
  const std::uint64_t budget = follows ? MemoryPressure::budget_for(0, 0) : options.budget_bytes;
  const TableTerms terms{options.share.empty() ? "" : terms_of(checkpoint, placed, units),
                         options.budget_bytes, std::string(policy->name())};
  TRY_ASSIGN(memory, TableMemory::of(options.share, terms, plan, *policy, budget));
  reads = std::make_unique<UnitReads>(
      checkpoint, [this](UnitRead& read) { finish(read); }, [this] { return next_prefetch(); });
  TRY(reads->start(placed));
  if (!follows) return {};
  pressure = std::make_unique<MemoryPressure>([this] { look_at_memory(); });
  return pressure->start();
}

void ResidentSet::State::look_at_memory(const std::filesystem::path& root) {
  memory->bury_the_dead();  // the first may be one of them
  const ResidentTable::Lock lock(table());
  if (!memory->is_first()) return;
  const std::uint64_t used = table().used_bytes();
  table().set_budget(MemoryPressure::budget_for(used, table().most_needed(), root));
}

void ResidentSet::State::follow_memory(std::uint64_t needed) {
  const ResidentTable::Lock lock(table());
  std::uint64_t& most = table().most_needed();
  if (options.budget_bytes != 0 || needed <= most) return;
  most = needed;
  table().set_budget(MemoryPressure::budget_for(table().used_bytes(), most));
}

bool ResidentSet::State::is_of_parent() const noexcept { return forks != os::fork_count(); }

bool ResidentSet::State::use_mapping(std::uint32_t unit, const SourceFile*& unchanged) {
  if (!placed[unit].can_be_mapped) return false;
  const std::uint32_t before = cached_at[unit], now = now_ms();
  const bool was_cached = before != 0 && now - before < cached_for_ms;
  if (!was_cached) cached_at[unit] = 0;
  for (const PlacedPart& part : placed[unit].parts) {
    const SourceFile& source = checkpoint.sources.at(part.position);
    if (part.bytes == 0 || source.file.is_in_memory()) continue;
    const mmap::MappedFile mapped = source.in(checkpoint.mapping);
    const std::uint64_t offset = part.position - source.base();
    // Once in each call: what was written meanwhile is in the mapping.
    if (&source != std::exchange(unchanged, &source) &&
        (!mapped.check_not_lost() || !source.file.check_unchanged())) {
      cached_at[unit] = 0;
      unchanged = nullptr;
      return false;
    }
    if (was_cached) continue;
    if (!mmap::is_surely_cached(mapped, offset, part.bytes)) return false;
    if (before != 0) continue;  // and mapped
    mmap::PageLoader loader(mapped, mmap::best_load_method(checkpoint.mapping));
    if (!loader.load_exactly(offset, part.bytes)) return false;
  }
  if (!was_cached) cached_at[unit] = now;
  return true;
}

std::shared_ptr<UnitRead> ResidentSet::State::make_read(std::uint32_t unit, ReadTarget target) {
  auto read = std::make_shared<UnitRead>();
  read->unit = unit;
  read->parts = reads_of(checkpoint.sources, placed[unit], target);
  read->left = read->parts.size();
  return read;
}

void ResidentSet::State::begin(const std::shared_ptr<UnitRead>& read) {
  read->slot = slot_of(read->unit);
  {
    const std::scoped_lock lock(mutex);
    reading[read->unit] = read;
  }
  Result<void> done = allocate(read->unit);
  if (done && !read->parts.empty()) return reads->add(read);
  if (!done) read->error = std::move(done.error());
  read->is_done = true;
  finish(*read);
}

Result<void> ResidentSet::State::allocate(std::uint32_t unit) {
  {
    const ResidentTable::Lock lock(table());
    if (table().has_memory(unit)) return {};
  }
  TRY(memory->slots().allocate(table().byte_of(unit), plan.slot_bytes(unit)));
  const ResidentTable::Lock lock(table());
  table().got_memory(unit);
  return {};
}

void ResidentSet::State::finish(UnitRead& read) {
  const bool has_failed = read.has_failed();
  // Who waits for what was given up reads it anew.
  const bool is_given_up = has_failed && read.is_ahead && read.error->code == ErrorCode::cancelled;
  if (read.slot != nullptr && (!has_failed || is_given_up)) {
    const std::scoped_lock lock(mutex);
    reading.erase(read.unit);
  }
  {
    const ResidentTable::Lock lock(table());
    table().counters().read_bytes += read.read_bytes;
    if (read.is_ahead && !has_failed) ++table().counters().prefetched;
    if (read.slot != nullptr)
      table().finish(read.unit, !has_failed);
    else
      ++table().changes();
  }
  wake();
}

void ResidentSet::State::forget_failure(std::uint32_t unit) {
  const std::scoped_lock lock(mutex);
  const auto found = reading.find(unit);
  if (found != reading.end() && found->second && found->second->is_done) reading.erase(found);
}

// Units that are not there and whose place others can leave; what is cached has its place.
std::shared_ptr<UnitRead> ResidentSet::State::next_prefetch() {
  for (;;) {
    std::uint32_t unit = 0;
    {
      const std::scoped_lock lock(mutex);
      if (to_prefetch.empty()) return nullptr;
      unit = to_prefetch.front();
      to_prefetch.pop_front();
    }
    const SourceFile* unchanged = nullptr;
    if (use_mapping(unit, unchanged)) continue;
    if (all_fit() && placed[unit].can_be_mapped) return make_read(unit, ReadTarget::page_cache);
    const auto read = make_read(unit, ReadTarget::slot);
    {
      const std::scoped_lock lock(mutex);
      reading.try_emplace(unit);
    }
    bool has_slot = false;
    {
      const ResidentTable::Lock lock(table());
      if (table().state(unit) != UnitState::absent) continue;
      has_slot = table().prefetch(unit, memory->member());
    }
    if (!has_slot) {
      memory->bury_the_dead();  // they may be why
      continue;
    }
    read->slot = slot_of(unit);
    read->is_ahead = true;
    {
      const std::scoped_lock lock(mutex);
      reading[unit] = read;
    }
    Result<void> done = allocate(unit);
    if (done && !read->parts.empty()) return read;
    if (!done) read->error = std::move(done.error());
    finish(*read);
  }
}

os::Waiters ResidentSet::State::waiters() const noexcept {
  return memory->is_shared() ? os::Waiters::of_memory : os::Waiters::of_process;
}

void ResidentSet::State::wake() const noexcept {
  if (table().waiters() != 0) os::wake_all(table().changes(), waiters());
}

void ResidentSet::State::wait(std::uint32_t seen) {
  const auto begin = std::chrono::steady_clock::now();
  ++table().waiters();
  os::wait_while(table().changes(), seen, look_after, waiters());
  --table().waiters();
  if (std::chrono::steady_clock::now() - begin >= look_after) memory->bury_the_dead();
}

Error ResidentSet::State::about(std::uint32_t unit, Error error) const {
  error.message = "unit " + bytes::quote(units[unit].name) + ": " + error.message;
  return error;
}

}  // namespace weightmap
