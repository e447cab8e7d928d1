// The memory of a table and of its slots: of one process, or of all that share it by a name.
//
// Shared memory is a memfd, sealed against a change of its size, so that nothing is left behind
// whoever dies. Who joins finds it by the names of lock files in the runtime directory,
// "resident-NAME.PID.DESCRIPTOR", one for each set that has it; each is locked as long as the set
// lives, so that the death of a process is noticed, too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "mmap/memory/slot_memory.hpp"
#include "runtime/services/resident/resident_table.hpp"
#include "runtime/system/process/process_lock.hpp"
#include "runtime/system/process/runtime_directory.hpp"
#include "runtime/system/unique_fd.hpp"

namespace weightmap {

// What all that share a table must have in common.
struct TableTerms {
  std::string units;               // the units and the versions of their files, as text
  std::uint64_t budget_bytes = 0;  // as given
  std::string policy;
};

class TableMemory {
 public:
  // `plan` and `policy` must outlive it. `budget_bytes` is that of now, of a new table. With a name
  // fails as ResidentSet::of() does.
  static Result<std::unique_ptr<TableMemory>> of(const std::string& name, const TableTerms& terms,
                                                 const SlotPlan& plan, const EvictionPolicy& policy,
                                                 std::uint64_t budget_bytes);
  TableMemory(const TableMemory&) = delete;
  TableMemory& operator=(const TableMemory&) = delete;
  // What this set had is free. Not in a child of the process that made it.
  ~TableMemory();

  ResidentTable& table() noexcept { return *table_; }
  const mmap::SlotMemory& slots() const noexcept { return slots_; }
  unsigned member() const noexcept { return member_; }
  bool is_shared() const noexcept { return directory_.has_value(); }
  // True for the first of the sets that share it.
  bool is_first() noexcept;
  // Takes from sets of dead processes what they had.
  void bury_the_dead();

 private:
  TableMemory() = default;
  Result<void> make_private(const SlotPlan& plan, const EvictionPolicy& policy,
                            std::uint64_t budget_bytes);
  Result<void> share(const std::string& name, const TableTerms& terms, const SlotPlan& plan,
                     const EvictionPolicy& policy, std::uint64_t budget_bytes);
  Result<os::UniqueFd> find_memory();
  Result<os::UniqueFd> memory_of(const std::string& lock_file, ResidentTable::Member member);
  Result<void> map(const SlotPlan& plan, const EvictionPolicy& policy);
  Result<void> check(const TableTerms& terms, std::uint64_t bytes);
  Result<void> join();
  bool is_dead(ResidentTable::Member member) const;
  std::string lock_name(ResidentTable::Member member) const;

  std::optional<os::RuntimeDirectory> directory_;
  std::string prefix_;  // of the names of lock files
  os::UniqueFd memory_;
  mmap::Reservation table_bytes_;
  mmap::SlotMemory slots_;
  std::optional<ResidentTable> table_;
  std::optional<os::ProcessLock> lock_;
  unsigned member_ = ResidentTable::most_members;  // none
};

}  // namespace weightmap
