// Parts of tensors that are larger than memory, read when they are needed.
//
// A table of embeddings of which each token needs a few dozen scattered rows is read badly through
// a mapping: the system's read-ahead fetches megabytes around each row. A RowReader asks for
// exactly the pages of the rows, all of them at once, copies the rows out, and gives the process's
// mapped pages back above a budget. The pages stay in the page cache, which all processes share.
//
//   const auto rows = weightmap::RowReader::of(*checkpoint, {"engram.weight", "engram.scale"});
//   if (!rows) return tl::unexpected(rows.error());
//   std::vector<std::byte> weights(ids.size() * rows->row_bytes(0));
//   std::vector<std::byte> scales(ids.size() * rows->row_bytes(1));
//   auto done = rows->gather(ids, {weights, scales});
//
// The experts of a mixture-of-experts model are megabytes each, of which a token needs a few. A
// ResidentSet keeps those that were used lately in memory, within a budget, and reads the others
// past the page cache when the router asks: the page cache knows pages, not experts, and would keep
// a third as many of them.
//
//   auto experts = weightmap::expert_units(*checkpoint);
//   if (!experts) return tl::unexpected(experts.error());
//   auto set = weightmap::ResidentSet::of(*checkpoint, *experts, {.budget_bytes = 8ull << 30});
//   if (!set) return tl::unexpected(set.error());
//   const std::vector<std::size_t> chosen{3, 17};  // positions among the units, by the router
//   auto leases = set->acquire(chosen);            // returns when all of them are there
//   if (!leases) return tl::unexpected(leases.error());
//   std::span<const std::byte> down = leases->at(0).part(0);  // valid as long as its lease
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

class Checkpoint;

// Sets how the pages of a tensor are read, also those that it shares with its neighbours, in each
// mapping of the checkpoint. Reads nothing; replaces what was set before. A Warmer of the whole
// checkpoint leaves out what is Access::random. Without effect on a checkpoint in memory. Fails
// with invalid_argument for a view of another checkpoint, with io if the system refuses. Any
// thread.
WEIGHTMAP_API Result<void> advise(const Checkpoint& checkpoint, const TensorView& view,
                                  Access access);

struct RowOptions {
  // Pages of the tables that stay mapped into this process (RssFile), in bytes. A gather that maps
  // more gives all of them back; a later one maps those that it needs again, from the page cache.
  std::uint64_t budget_bytes = std::uint64_t{64} << 20;
};

// Rows of one table or of several that belong together: weights and their scales. The tables may
// lie in several files, and a table in several pieces along its first dimension (chunks.hpp).
//
// Const members may be called from any thread, several at a time. The checkpoint must outlive it;
// of a child after fork() it serves, too, by a mapping of its own. Rows are copied out of the
// mapping: a file that was truncated before the call is an error; one that another process
// truncates during it raises SIGBUS, as the views do (OpenOptions::protection).
class WEIGHTMAP_API RowReader {
 public:
  // Fails as whole_tensor() does; with unsupported for a table whose rows do not lie one after the
  // other, are not whole bytes or of the other byte order, or that is divided along another
  // dimension than the first; with invalid_argument for no table, one without a dimension, tables
  // of different numbers of rows, or a checkpoint that is writable, whose pages cannot be given
  // back. Advises the pages of the tables as Access::random.
  static Result<RowReader> of(const Checkpoint& checkpoint,
                              std::span<const std::string_view> tables,
                              const RowOptions& options = {});
  static Result<RowReader> of(const Checkpoint& checkpoint,
                              std::initializer_list<std::string_view> tables,
                              const RowOptions& options = {}) {
    return of(checkpoint, std::span(tables.begin(), tables.size()), options);
  }

  RowReader(RowReader&&) noexcept;
  RowReader& operator=(RowReader&&) noexcept;
  ~RowReader();

  std::size_t table_count() const noexcept;
  std::int64_t row_count() const noexcept;  // of each table
  // Precondition: table < table_count().
  std::uint64_t row_bytes(std::size_t table) const noexcept;

  // Copies the rows of these numbers, in this order, into `out`, of which each table has its own:
  // `ids.size()` rows of row_bytes(). An id may occur any number of times. Each page that is not in
  // the page cache is read once, all of them at once; no other page is read. Fails with
  // invalid_argument for an id that is no row, or an `out` that does not fit; with io, naming the
  // file, if it was truncated or written to since the open.
  Result<void> gather(std::span<const std::int64_t> ids,
                      std::span<const std::span<std::byte>> out) const;
  Result<void> gather(std::span<const std::int64_t> ids,
                      std::initializer_list<std::span<std::byte>> out) const {
    return gather(ids, std::span(out.begin(), out.size()));
  }

 private:
  struct WEIGHTMAP_LOCAL State;
  explicit RowReader(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

// A tensor, or one slice of it along its first dimension.
struct UnitPart {
  std::string tensor;
  std::optional<std::int64_t> index;  // of the slice; nullopt: the whole tensor
  // Its bytes follow those of the part before it without a gap, so that both can be used as one
  // tensor (gate and up of files that have them apart). Otherwise a part begins at a multiple of
  // unit_alignment.
  bool is_joined = false;
};

// What is used together, and so comes and goes together: the gate, up and down matrices of one
// expert in one layer, and their scales.
struct Unit {
  std::string name;
  std::vector<UnitPart> parts;
};

// The alignment of parts in memory, in bytes: a cache line, and the widest vector registers. A part
// that lies in the mapping has that of the file.
inline constexpr std::size_t unit_alignment = 64;

// Finds the experts of a checkpoint among the tensors that match a pattern (match_tensors()), in
// file order of their first parts. Tensors of an expert each, "layers.0.experts.7.w1.weight", come
// first: a unit "layers.0.experts.7" has all that begin so, by name. Then come fused tensors, whose
// first dimension is that of the experts, "layers.0.experts.gate_up_proj" or
// "blk.0.ffn_gate_exps.weight", as GGUF has them: a unit "layers.0.experts.7" or "blk.0.exps.7" has
// slice 7 of each, by name.
// Fails with not_found if there is none, with unsupported if fused tensors of one layer have
// different numbers of experts, or if an expert has both a tensor of its own and a slice, with
// limit_exceeded if there are more than 4 million slices.
WEIGHTMAP_API Result<std::vector<Unit>> expert_units(const Checkpoint& checkpoint,
                                                     std::string_view pattern = "*");

// What is known of the use of a unit, for an EvictionPolicy. Units that are not resident have one,
// too. Times are numbers of calls of acquire().
struct UnitHistory {
  std::uint64_t last_used = 0;  // 0: never
  std::uint64_t entered = 0;    // when it became resident the last time, also by a prefetch
  std::uint64_t uses = 0;       // calls that acquired it
  std::uint64_t own = 0;        // of the policy
};

// Decides which unit makes room. Its functions are called under the lock of the set, of whatever
// thread: they must not block, or call the set. Its state is in the histories, which all processes
// of a shared set have in common; so all of them must use the same policy.
class WEIGHTMAP_API EvictionPolicy {
 public:
  virtual ~EvictionPolicy();
  virtual std::string_view name() const noexcept = 0;
  // A unit was acquired at this time, and was resident. Its history has the use already.
  virtual void hit(UnitHistory& unit, std::uint64_t now) const noexcept = 0;
  // Likewise, but it was not resident, and is now; or it was prefetched, and is not used yet.
  virtual void entered(UnitHistory& unit, std::uint64_t now) const noexcept = 0;
  // Returns the position of the one that is to go. They are resident, and nobody has a lease of
  // them. Precondition: there is one.
  virtual std::size_t choose(std::span<UnitHistory* const> units,
                             std::uint64_t now) const noexcept = 0;
};

// Returns "lru" (what was not used for the longest time goes), "lfu" (what was used least, where
// uses count half after each 1,024 calls), "sieve" or "s3fifo"; nullptr for any other name.
WEIGHTMAP_API std::shared_ptr<const EvictionPolicy> eviction_policy(std::string_view name);

struct ResidentOptions {
  // Memory for units, in bytes. 0: what this machine and the cgroups of this process can give; it
  // is asked anew all the time, and follows other processes down and up.
  std::uint64_t budget_bytes = 0;
  // Processes of one user that give the same name, units and files use one set of slots. The memory
  // has no name in a file system: it is gone with the last of them. Empty: this process alone.
  std::string share = {};
  // How long acquire() waits for leases of others to end if they leave it no room. It waits beside
  // that for what is being read ahead.
  std::uint64_t wait_ms = 10'000;
  std::shared_ptr<const EvictionPolicy> policy = {};  // nullptr: "lru"
};

// Since the set was made, by all processes that share it unless it says otherwise.
struct ResidentStats {
  std::uint64_t budget_bytes = 0;    // as of now
  std::uint64_t slot_bytes = 0;      // of resident units
  std::uint64_t resident_units = 0;  // in slots
  std::uint64_t mapped_units = 0;    // of this process: last handed out as a part of the mapping
  std::uint64_t leased_units = 0;
  std::uint64_t hits = 0;              // units, in slots or in the mapping
  std::uint64_t misses = 0;            // units
  std::uint64_t missed_bytes = 0;      // of the parts of these
  std::uint64_t read_bytes = 0;        // from the files, for misses and prefetches
  std::uint64_t prefetched_units = 0;  // that were read
  std::uint64_t evicted_units = 0;
  std::uint64_t waited_ns = 0;  // of threads in acquire(), all together
  std::uint64_t processes = 1;  // that have the set now
  std::string why_not_direct;   // the file system's refusal of reads past the page cache, if it did
};

// A line of a profile, as ResidentSet::save_profile() writes them.
struct UnitUses {
  std::string name;
  std::uint64_t uses = 0;
};
// Fails with io, and with corrupt for a line that is none, which it names.
WEIGHTMAP_API Result<std::vector<UnitUses>> read_profile(const std::string& path);

class ResidentSet;

// Keeps the bytes of one unit where they are until it is destroyed. Belongs to one thread at a
// time; may be passed to another one. The set must outlive it.
class WEIGHTMAP_API Lease {
 public:
  Lease(Lease&& other) noexcept
      : set_(std::exchange(other.set_, nullptr)),
        unit_(other.unit_),
        slot_(std::exchange(other.slot_, nullptr)) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(set_, other.set_);
    std::swap(unit_, other.unit_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~Lease() {
    if (set_) end();
  }

  std::size_t unit() const noexcept { return unit_; }  // position in ResidentSet::units()
  // The bytes of a part, as the file has them. Read-only memory: a write may be seen by other
  // processes or end this one. Precondition: index < units()[unit()].parts.size().
  std::span<const std::byte> part(std::size_t index) const noexcept;
  // True if they are pages of the mapping.
  bool is_mapped() const noexcept { return slot_ == nullptr; }

 private:
  friend class ResidentSet;
  Lease(const void* set, std::size_t unit, const std::byte* slot) noexcept
      : set_(set), unit_(unit), slot_(slot) {}
  void end() noexcept;

  const void* set_;
  std::size_t unit_;
  const std::byte* slot_;
};

// Units of a checkpoint, of which as many are in memory as a budget allows.
//
// acquire() hands out a unit where it is: in a slot; or in the mapping, if the page cache has it,
// or if all units fit into the budget, where the one copy of all processes is. What is nowhere is
// read past the page cache into a slot, as much at a time as the disk needs.
//
// Const members may be called from any thread, several at a time; no lock is held while something
// is read. The checkpoint must outlive the set, the set its leases. A child after fork() has none
// of the threads: nothing can be acquired there (unsupported) and nothing is known of its use; make
// the set in the child, with `share`. The leases of its parent stay there as they were, except
// those of a shared set, whose memory the child does not have: touching it is SIGSEGV.
class WEIGHTMAP_API ResidentSet {
 public:
  // Fails as whole_tensor() does; with invalid_argument for no unit, one without parts, two of one
  // name, an index that is no slice, a first part that is joined, or a checkpoint that is writable;
  // with unsupported for parts whose bytes do not lie one after the other or are of the other byte
  // order, or views without memory; with limit_exceeded if the budget is below the largest unit;
  // with io if the system refuses memory or threads. With `share`: with invalid_argument if the
  // others have other units, another policy or another budget.
  static Result<ResidentSet> of(const Checkpoint& checkpoint, std::vector<Unit> units,
                                const ResidentOptions& options = {});

  struct WEIGHTMAP_LOCAL State;  // the library's own
  ResidentSet(ResidentSet&&) noexcept;
  ResidentSet& operator=(ResidentSet&&) noexcept;
  ~ResidentSet();  // ends its reads first; all leases must have ended

  const std::vector<Unit>& units() const noexcept;
  // Returns the position of the unit of this name.
  std::optional<std::size_t> find(std::string_view name) const noexcept;
  // Of all parts, in memory.
  std::uint64_t unit_bytes(std::size_t unit) const noexcept;

  // Returns a lease for each of these positions in units(), in this order, once all of them are
  // there; a unit may be named several times. All or none: no call holds some while it waits for
  // others. Fails with invalid_argument for no such unit; with limit_exceeded, naming a unit and
  // the bytes, if the units of this call do not fit into the budget, or if leases of others leave
  // no room for `wait_ms`; with io, naming the unit and the file, if a file was truncated, was
  // written to since the open, or could not be read.
  Result<std::vector<Lease>> acquire(std::span<const std::size_t> units) const;

  // Reads units that may be wanted soon, in this order, when nothing is waited for, and returns at
  // once. What of the last call was not begun yet is given up: an empty list cancels. It takes the
  // place of what the policy gives up, never that of leases. What is not there when an acquire()
  // has to wait for room is given up, too. An error is that of a later acquire().
  void prefetch(std::span<const std::size_t> units) const;

  ResidentStats stats() const;
  // The history of each unit, as of now.
  std::vector<UnitHistory> history() const;
  // Returns how many bytes of the units that are in no slot the page cache has: what acquire() need
  // not read. Asks the system about each page of their files. Fails with io, naming the file, if it
  // does not tell.
  Result<std::uint64_t> cached_bytes() const;

  // Writes a profile: the names of the units with their uses, those that were used last at the end,
  // as lines of text; bytes of a name that end a line, or cannot be printed, are \xNN. Fails with
  // io.
  Result<void> save_profile(const std::string& path) const;
  // Prefetches the last units of a profile that the budget has room for; names of no unit are left
  // out. Fails as read_profile() does.
  Result<void> load_profile(const std::string& path) const;

 private:
  explicit ResidentSet(std::unique_ptr<State> state) noexcept;
  WEIGHTMAP_LOCAL std::vector<std::size_t> last_that_fit(
      const std::vector<std::size_t>& units) const;
  std::unique_ptr<State> state_;
};

}  // namespace weightmap
