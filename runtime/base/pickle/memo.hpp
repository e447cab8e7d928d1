// The memo of PUT and GET: memo id -> cell.
//
// It has two kinds of entry. An ordinary PUT stores its cell in a paged table. A packed call stores
// nothing: the call itself has the consecutive ids of its pieces, and a GET finds it by binary
// search. This requires ascending ids, which every pickler writes; see Memo::put.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/bytes/arena.hpp"
#include "runtime/base/value/tree.hpp"

namespace weightmap::pickle {

class Memo {
 public:
  enum class Outcome : std::uint8_t { ok, out_of_budget, overlaps_packed };

  explicit Memo(bytes::Arena& arena) noexcept : arena_(&arena) {}

  // Returns overlaps_packed if the id is not above those of all packed calls, so that the table and
  // the calls might disagree about it. Nothing was stored; the caller starts again without packing.
  Outcome put(std::uint32_t id, const value::Cell& cell);
  // Returns nullptr if there is no such id. `scratch` may hold the result.
  const value::Cell* get(std::uint32_t id, value::Cell& scratch) const noexcept;

  // Greater than every id so far.
  std::uint32_t next_id() const noexcept { return next_id_; }
  // The number of ids, which is the id that MEMOIZE takes.
  std::uint32_t count() const noexcept { return next_id_ - gaps_; }

  // Adds an uninitialised call at the end; returns nullptr if the budget is spent. Until
  // commit_packed(), add_packed() returns the same call again.
  value::PackedCall* add_packed() {
    return packed_next_ != packed_stop_ || grow_packed() ? packed_next_ : nullptr;
  }
  // The call from add_packed() occupies `count` ids from its memo_base, which is next_id().
  void commit_packed(std::uint32_t count) noexcept {
    packed_end_ = packed_next_->memo_base + count;
    next_id_ = packed_end_;
    ++packed_next_;
    ++packed_count_;
  }
  std::uint64_t packed_count() const noexcept { return packed_count_; }

 private:
  static constexpr std::uint32_t page_cells = 64;
  static constexpr std::uint64_t segment_calls = 1024;

  bool grow_packed();
  const value::PackedCall& packed(std::uint64_t index) const noexcept {
    return segments_[index / segment_calls][index % segment_calls];
  }

  bytes::Arena* arena_;
  std::vector<value::Cell*> pages_;
  std::vector<value::PackedCall*> segments_;
  value::PackedCall* packed_next_ = nullptr;  // in the last segment, which ends at packed_stop_
  value::PackedCall* packed_stop_ = nullptr;
  std::uint64_t packed_count_ = 0;
  std::uint32_t next_id_ = 0;
  std::uint32_t gaps_ = 0;        // ids below next_id_ that were never set
  std::uint32_t packed_end_ = 0;  // ids of packed calls are below this
};

}  // namespace weightmap::pickle
