#include "runtime/services/resident/table_memory.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "mmap/memory/memory_to_fill.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/base/bytes/round_up.hpp"
#include "runtime/base/bytes/sha256.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/memory/sealed_memory.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap {
namespace {

constexpr std::chrono::milliseconds between_tries{5};
constexpr int most_tries = 2000;  // 10 s
constexpr int most_opens = 40;

// Dots end it in the names of lock files.
Result<void> check_name(const std::string& name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  if (!name.empty() && name.size() <= 100 && std::ranges::all_of(name, is_plain)) return {};
  return failure(
      ErrorCode::invalid_argument,
      "share is " + bytes::quote(name) + ", expected up to 100 letters, digits, \"_\" and \"-\"");
}

// What two sets compare; 64 bits of a sum for which nobody finds two texts at will.
std::uint64_t sum_of(std::string_view text) noexcept {
  bytes::Sha256 sum;
  sum.add(std::as_bytes(std::span(text)));
  const bytes::Sha256::Digest digest = sum.digest();
  std::uint64_t first = 0;
  std::memcpy(&first, digest.data(), sizeof first);
  return first;
}

std::uint64_t slots_begin(const SlotPlan& plan) noexcept {
  return bytes::round_up(ResidentTable::bytes_for(plan), os::large_page);
}

// Only one process at a time looks for the memory, or makes it.
Result<os::ProcessLock> wait_for_turn(const os::RuntimeDirectory& directory,
                                      const std::string& name) {
  for (int tries = 0; tries < most_tries; ++tries) {
    TRY_ASSIGN(std::optional<os::ProcessLock> lock, os::ProcessLock::try_lock(directory, name));
    if (lock) return std::move(*lock);
    std::this_thread::sleep_for(between_tries);
  }
  return failure(ErrorCode::io, "another process has been making the shared set for 10 s");
}

// "PID.DESCRIPTOR"; nullopt for anything else.
std::optional<ResidentTable::Member> member_of(std::string_view text) {
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto process = bytes::number(text.substr(0, dot));
  const auto descriptor = bytes::number(text.substr(dot + 1));
  if (!process || !descriptor || *process > ~std::uint32_t{0} || *descriptor > ~std::uint32_t{0})
    return std::nullopt;
  return ResidentTable::Member{static_cast<std::uint32_t>(*process),
                               static_cast<std::uint32_t>(*descriptor)};
}

}  // namespace

Result<std::unique_ptr<TableMemory>> TableMemory::of(const std::string& name,
                                                     const TableTerms& terms, const SlotPlan& plan,
                                                     const EvictionPolicy& policy,
                                                     std::uint64_t budget_bytes) {
  std::unique_ptr<TableMemory> made(new TableMemory);
  TRY(name.empty() ? made->make_private(plan, policy, budget_bytes)
                   : made->share(name, terms, plan, policy, budget_bytes));
  return made;
}

Result<void> TableMemory::make_private(const SlotPlan& plan, const EvictionPolicy& policy,
                                       std::uint64_t budget_bytes) {
  table_bytes_ = mmap::Reservation(ResidentTable::bytes_for(plan), os::large_page,
                                   mmap::Reservation::Access::write);
  if (table_bytes_.is_empty()) return os::os_failure("get memory for the table of slots");
  TRY_ASSIGN(slots_, mmap::SlotMemory::of_process(plan.memory_bytes()));
  table_.emplace(table_bytes_.bytes(), plan, policy, slots_);
  TRY(table_->begin(os::SharedMutex::Users::process, budget_bytes));
  member_ = table_->join({});
  return {};
}

Result<void> TableMemory::share(const std::string& name, const TableTerms& terms,
                                const SlotPlan& plan, const EvictionPolicy& policy,
                                std::uint64_t budget_bytes) {
  TRY(check_name(name));
  TRY_ASSIGN(directory_, os::RuntimeDirectory::open());
  prefix_ = "resident-" + name;
  TRY_ASSIGN(const os::ProcessLock turn, wait_for_turn(*directory_, prefix_));
  TRY_ASSIGN(memory_, find_memory());
  const std::uint64_t bytes = slots_begin(plan) + plan.memory_bytes();
  const bool is_new = memory_.get() < 0;
  if (is_new) {
    TRY_ASSIGN(memory_, os::make_memfd(bytes, "weightmap-" + prefix_));
    TRY(os::seal_size(memory_.get()));
  } else {
    TRY(check(terms, bytes));
  }
  TRY(map(plan, policy));
  if (is_new) {
    TRY(table_->begin(os::SharedMutex::Users::processes, budget_bytes));
    table_->terms() = {sum_of(terms.units), terms.budget_bytes, sum_of(terms.policy)};
  }
  return join();
}

// Of a set that lives; -1 if there is none. Takes away the lock files of those that died.
Result<os::UniqueFd> TableMemory::find_memory() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_->path(), error))
    names.push_back(entry.path().filename().native());
  for (const std::string& name : names) {
    if (!name.starts_with(prefix_ + ".")) continue;
    const auto member = member_of(std::string_view(name).substr(prefix_.size() + 1));
    if (!member) continue;
    TRY_ASSIGN(os::UniqueFd found, memory_of(name, *member));
    if (found.get() >= 0) return found;
  }
  return os::UniqueFd();
}

// -1 if its set has ended, or ends meanwhile.
Result<os::UniqueFd> TableMemory::memory_of(const std::string& lock_file,
                                            ResidentTable::Member member) {
  const auto is_held = [&]() -> Result<bool> {
    TRY_ASSIGN(const std::optional<os::ProcessLock> lock,
               os::ProcessLock::try_lock(*directory_, lock_file));
    return !lock;
  };
  TRY_ASSIGN(bool lives, is_held());
  Result<os::UniqueFd> memory = os::UniqueFd();
  for (int tries = 0; lives && tries < most_opens; ++tries) {
    memory = os::open_memory_of(member.process, member.descriptor);
    if (!memory) std::this_thread::sleep_for(between_tries);  // it has closed it, and ends
    TRY_ASSIGN(lives, is_held());
    if (memory && lives) return memory;
  }
  if (lives) return memory;
  return os::UniqueFd();
}

// Its size tells of another number of units or slots; what the table has at its beginning, all
// else.
Result<void> TableMemory::check(const TableTerms& terms, std::uint64_t bytes) {
  const auto refused = [this](std::string_view what) {
    return failure(ErrorCode::invalid_argument, "the set that is shared as " +
                                                    bytes::quote(prefix_.substr(9)) + " has " +
                                                    std::string(what));
  };
  TRY_ASSIGN(const mmap::Reservation begin,
             mmap::map_for_writing(memory_.get(), ResidentTable::terms_bytes()));
  const ResidentTable::Terms found = ResidentTable::terms_in(begin.bytes());
  if (found.units != sum_of(terms.units))
    return refused("other units, or another version of the files");
  if (found.budget_bytes != terms.budget_bytes)
    return refused("a budget of " + std::to_string(found.budget_bytes) + " bytes, not of " +
                   std::to_string(terms.budget_bytes));
  if (found.policy != sum_of(terms.policy)) return refused("another policy");
  TRY_ASSIGN(const std::uint64_t size, os::size_of_memory(memory_.get()));
  if (size != bytes) return refused("slots of another size");
  return {};
}

Result<void> TableMemory::map(const SlotPlan& plan, const EvictionPolicy& policy) {
  TRY_ASSIGN(table_bytes_, mmap::map_for_writing(memory_.get(), ResidentTable::bytes_for(plan)));
  TRY_ASSIGN(slots_,
             mmap::SlotMemory::of_file(memory_.get(), slots_begin(plan), plan.memory_bytes()));
  table_.emplace(table_bytes_.bytes(), plan, policy, slots_);
  return {};
}

Result<void> TableMemory::join() {
  const ResidentTable::Member self{os::own_process_id(), static_cast<std::uint32_t>(memory_.get())};
  TRY_ASSIGN(std::optional<os::ProcessLock> lock,
             os::ProcessLock::try_lock(*directory_, lock_name(self)));
  if (lock) lock_.emplace(std::move(*lock));
  if (!lock_) return failure(ErrorCode::io, "the lock of the shared set is taken");
  bury_the_dead();
  const ResidentTable::Lock table(*table_);
  // The lock is this set's: who had its name before is dead, as after exec().
  for (unsigned each = 0; each < ResidentTable::most_members; ++each)
    if (table_->is_member(each) && table_->member(each) == self) table_->leave(each);
  member_ = table_->join(self);
  if (member_ != ResidentTable::most_members) return {};
  return failure(ErrorCode::limit_exceeded,
                 "the shared set has " + std::to_string(member_) + " users already");
}

std::string TableMemory::lock_name(ResidentTable::Member member) const {
  return prefix_ + "." + std::to_string(member.process) + "." + std::to_string(member.descriptor);
}

TableMemory::~TableMemory() {
  if (!table_ || member_ == ResidentTable::most_members) return;
  const ResidentTable::Lock lock(*table_);
  table_->leave(member_);
}

bool TableMemory::is_first() noexcept {
  for (unsigned each = 0; each < member_; ++each)
    if (table_->is_member(each)) return false;
  return true;
}

void TableMemory::bury_the_dead() {
  if (!is_shared()) return;
  const ResidentTable::Lock lock(*table_);
  for (unsigned each = 0; each < ResidentTable::most_members; ++each) {
    if (each == member_ || !table_->is_member(each)) continue;
    if (is_dead(table_->member(each))) table_->leave(each);
  }
}

// Who has the memory lives, even if somebody has removed its lock file: what it leases must stay.
bool TableMemory::is_dead(ResidentTable::Member member) const {
  const auto lock = os::ProcessLock::try_lock(*directory_, lock_name(member));
  return lock && *lock && !os::is_memory_of(memory_.get(), member.process, member.descriptor);
}

}  // namespace weightmap
