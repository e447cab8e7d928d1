#include "runtime/base/pickle/memo.hpp"

#include <algorithm>

namespace weightmap::pickle {
namespace {

constexpr std::uint8_t unset = 0xFF;  // no Value::Kind

}  // namespace

Memo::Outcome Memo::put(std::uint32_t id, const value::Cell& cell) {
  if (id < packed_end_) return Outcome::overlaps_packed;
  const std::size_t page = id / page_cells;
  if (page >= pages_.size()) {
    // After packed calls an id may be several pages beyond the last one.
    const std::size_t grown = std::max(page + 1 + page / 8, pages_.size() * 2);
    if (!arena_->charge((grown - pages_.size()) * sizeof(value::Cell*)))
      return Outcome::out_of_budget;
    pages_.resize(grown, nullptr);
  }
  if (pages_[page] == nullptr) {
    pages_[page] = arena_->allocate<value::Cell>(page_cells);
    if (pages_[page] == nullptr) return Outcome::out_of_budget;
    value::Cell empty;
    empty.kind = unset;
    std::fill_n(pages_[page], page_cells, empty);
  }
  value::Cell& entry = pages_[page][id % page_cells];
  if (id >= next_id_) {
    gaps_ += id - next_id_;
    next_id_ = id + 1;
  } else if (entry.kind == unset) {
    --gaps_;
  }
  entry = cell;
  return Outcome::ok;
}

const value::Cell* Memo::get(std::uint32_t id, value::Cell& scratch) const noexcept {
  const std::size_t page = id / page_cells;
  if (page < pages_.size() && pages_[page] != nullptr) {
    const value::Cell& cell = pages_[page][id % page_cells];
    if (cell.kind != unset) return &cell;
  }
  // Finds the last packed call that begins at or before `id`.
  std::uint64_t first = 0;
  std::uint64_t count = packed_count_;
  while (count > 0) {
    const std::uint64_t half = count / 2;
    if (packed(first + half).memo_base <= id) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  if (first == 0) return nullptr;
  const value::PackedCall& call = packed(first - 1);
  if (id - call.memo_base >= packed_memo_count(call)) return nullptr;
  scratch = packed_memo(call, id - call.memo_base);
  if (scratch.part > value::packed_object) call.has_shared_pieces = true;
  return &scratch;
}

bool Memo::grow_packed() {
  packed_next_ = arena_->allocate<value::PackedCall>(segment_calls);
  packed_stop_ = packed_next_ == nullptr ? nullptr : packed_next_ + segment_calls;
  if (packed_next_ != nullptr) segments_.push_back(packed_next_);
  return packed_next_ != nullptr;
}

}  // namespace weightmap::pickle
