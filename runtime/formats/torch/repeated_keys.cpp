#include "runtime/formats/torch/repeated_keys.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/formats/torch/equal_key.hpp"
#include "runtime/formats/torch/names.hpp"
#include "runtime/formats/torch/walk_frame.hpp"
#include "runtime/formats/torch/work_budget.hpp"

namespace weightmap::torch {
namespace {

using value::Cell;
using value::Sequence;

constexpr std::uint32_t visited = mark_after_repeated_keys - 1;

class Dropping {
 public:
  Dropping(const value::Tree& tree, const ReadLimits& limits)
      : tree_(tree),
        budget_(tree.pickle().size(), limits.file_offset),
        most_bytes_(limits.limits.base_memory + 2 * tree.pickle().size()),
        file_offset_(limits.file_offset) {}

  Result<std::uint64_t> run() {
    TRY(meet(tree_.root()));
    while (!open_.empty()) {
      const Cell cell = open_.back();
      open_.pop_back();
      TRY(look_into(cell));
    }
    return dropped_;
  }

 private:
  struct Item {
    Cell key, value;
    std::size_t place;  // among the items
  };

  Result<void> fits(std::uint64_t bytes) const {
    if (bytes <= most_bytes_) return {};
    return failure(ErrorCode::limit_exceeded,
                   "a dict with a key that it holds twice needs more memory than " +
                       std::to_string(most_bytes_) + " bytes",
                   file_offset_);
  }

  // Queues the value if it may hold a dict.
  Result<void> meet(const Cell& cell) {
    TRY(budget_.spent(1));
    if (cell.part != value::whole_value) return {};
    switch (value::kind_of(cell)) {
      case Value::Kind::tuple:
      case Value::Kind::list:
      case Value::Kind::dict:
      case Value::Kind::set:
      case Value::Kind::frozen_set:
      case Value::Kind::object:
      case Value::Kind::persistent_id:
        break;
      default:
        return {};
    }
    if (std::uint32_t* const mark = mark_of(cell)) {
      if (*mark == visited) return {};
      *mark = visited;
    }
    TRY(fits((open_.size() + 1) * sizeof(Cell)));
    open_.push_back(cell);
    return {};
  }

  Result<void> meet_all(const Sequence* sequence) {
    value::CellCursor cells(sequence);
    while (const Cell* cell = cells.next()) TRY(meet(*cell));
    return {};
  }

  Result<void> look_into(const Cell& cell) {
    switch (value::kind_of(cell)) {
      case Value::Kind::tuple:
        for (std::uint32_t i = 0; i < cell.count; ++i) TRY(meet(value::tuple_element(cell, i)));
        return {};
      case Value::Kind::persistent_id:
        return meet(*value::target_of<const Cell>(cell));
      case Value::Kind::object: {
        const auto& object = *value::target_of<const value::Object>(cell);
        const Value callable(&tree_, object.callable);
        if (is_dict_class(callable.module(), callable.name())) TRY(drop(object.items));
        TRY(meet(object.callable));
        TRY(meet(object.arguments));
        TRY(meet_all(object.elements));
        TRY(meet_all(object.items));
        return meet(object.state);
      }
      case Value::Kind::dict:
        TRY(drop(value::target_of<Sequence>(cell)));
        [[fallthrough]];
      default:
        return meet_all(value::target_of<const Sequence>(cell));
    }
  }

  // Returns the items sorted so that equal keys are together and keep their order.
  Result<std::vector<Item>> sorted(const Sequence& sequence) {
    TRY(fits(sequence.count / 2 * sizeof(Item)));
    std::vector<Item> items;
    items.reserve(sequence.count / 2);
    std::uint64_t text_bytes = 0;
    value::CellCursor cells(&sequence);
    while (const Cell* key = cells.next()) {
      text_bytes += EqualKey(tree_, *key).text_bytes();
      items.push_back({*key, *cells.next(), items.size()});
    }
    TRY(budget_.spent(items.size() + text_bytes / 64));
    std::ranges::sort(items, [this](const Item& a, const Item& b) {
      const auto order = EqualKey(tree_, a.key) <=> EqualKey(tree_, b.key);
      return order != 0 ? order < 0 : a.place < b.place;
    });
    return items;
  }

  Result<void> drop(Sequence* sequence) {
    if (sequence == nullptr || sequence->count <= 2) return {};
    TRY_ASSIGN(std::vector<Item> items, sorted(*sequence));
    std::size_t kept = 0;
    for (const Item& item : items) {
      const EqualKey key(tree_, item.key);
      if (kept > 0 && key.is_comparable() && key == EqualKey(tree_, items[kept - 1].key))
        items[kept - 1].value = item.value;
      else
        items[kept++] = item;
    }
    if (kept == items.size()) return {};
    dropped_ += items.size() - kept;
    items.resize(kept);
    std::ranges::sort(items, {}, &Item::place);
    replace(*sequence, items);
    return {};
  }

  // There are fewer items than before, so the chunks have room for them. No chunk is empty.
  static void replace(Sequence& sequence, const std::vector<Item>& items) {
    auto item = items.begin();
    value::Chunk* chunk = sequence.first;
    for (;; chunk = chunk->next) {
      const auto count =
          std::min<std::uint64_t>(chunk->count, 2 * static_cast<std::uint64_t>(items.end() - item));
      for (std::uint64_t i = 0; i < count; i += 2, ++item) {
        chunk->cells()[i] = item->key;
        chunk->cells()[i + 1] = item->value;
      }
      chunk->count = count;
      if (item == items.end()) break;
    }
    chunk->next = nullptr;
    sequence.last = chunk;
    sequence.count = 2 * items.size();
  }

  const value::Tree& tree_;
  WorkBudget budget_;
  std::uint64_t most_bytes_;
  std::uint64_t file_offset_;
  std::uint64_t dropped_ = 0;
  std::vector<Cell> open_;
};

}  // namespace

Result<std::uint64_t> drop_repeated_keys(const value::Tree& tree, const ReadLimits& limits) {
  return Dropping(tree, limits).run();
}

}  // namespace weightmap::torch
