#include "runtime/formats/torch/repeated_keys.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/torch/names.hpp"
#include "runtime/formats/torch/walk_frame.hpp"
#include "runtime/formats/torch/work_budget.hpp"

namespace weightmap::torch {
namespace {

using value::Cell;
using value::Sequence;

constexpr std::string_view twice =
    " is in one dict twice; readers differ in which of the two values they show";

// Returns nullopt if the float has a fraction or leaves 64 bits.
std::optional<std::int64_t> integral(double value) noexcept {
  constexpr double limit = 9223372036854775808.0;  // 2^63
  if (!(value >= -limit && value < limit) || std::trunc(value) != value) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::string describe(const value::Tree& tree, const Cell& key) {
  switch (value::kind_of(key)) {
    case Value::Kind::none:
      return "None";
    case Value::Kind::boolean:
      return key.payload != 0 ? "True" : "False";
    case Value::Kind::integer:
      return std::to_string(static_cast<std::int64_t>(key.payload));
    case Value::Kind::real: {
      char digits[32];
      const auto end =
          std::to_chars(digits, digits + sizeof digits, std::bit_cast<double>(key.payload));
      return {digits, end.ptr};
    }
    case Value::Kind::big_integer:
      return "that is an integer of " + std::to_string(key.count) + " bytes";
    default:
      return bytes::quote(tree.text(key.payload, key.count));
  }
}

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
        if (is_dict_class({&tree_, object.callable})) TRY(drop(object.items));
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

EqualKey::EqualKey(const value::Tree& tree, const Cell& key) noexcept : cell_(key) {
  switch (value::kind_of(key)) {
    case Value::Kind::none:
      group_ = Group::none;
      break;
    case Value::Kind::boolean:
    case Value::Kind::integer:
      group_ = Group::integer;
      bits_ = key.payload;
      break;
    case Value::Kind::real: {
      const auto number = std::bit_cast<double>(key.payload);
      if (std::isnan(number)) break;
      const auto whole = integral(number);
      group_ = whole ? Group::integer : Group::real;
      bits_ = whole ? static_cast<std::uint64_t>(*whole) : key.payload;
      break;
    }
    case Value::Kind::big_integer:
      group_ = Group::big_integer;  // in a parsed tree, an integer that fits 64 bits is never of
                                    // this kind
      text_ = tree.text(key.payload, key.count);
      break;
    case Value::Kind::string:
      group_ = Group::string;
      text_ = tree.text(key.payload, key.count);
      break;
    case Value::Kind::bytes:
      group_ = Group::bytes;
      text_ = tree.text(key.payload, key.count);
      break;
    default:
      break;
  }
}

std::strong_ordering operator<=>(const EqualKey& a, const EqualKey& b) noexcept {
  if (a.group_ != b.group_) return a.group_ <=> b.group_;
  if (a.bits_ != b.bits_)
    return static_cast<std::int64_t>(a.bits_) <=> static_cast<std::int64_t>(b.bits_);
  if (a.text_.size() != b.text_.size()) return a.text_.size() <=> b.text_.size();
  if (a.text_.data() == b.text_.data()) return std::strong_ordering::equal;
  return a.text_ <=> b.text_;
}

Error key_twice(const value::Tree& tree, const Cell& key, std::uint64_t pickle_offset) {
  const bool has_place =
      value::kind_of(key) == Value::Kind::string && tree.is_in_pickle(key.payload);
  return {ErrorCode::corrupt,
          "the key " + describe(tree, key) + std::string(twice),
          pickle_offset + (has_place ? key.payload : 0),
          {}};
}

bool is_key_twice(const Error& error) noexcept {
  return error.code == ErrorCode::corrupt && error.message.ends_with(twice);
}

Result<std::uint64_t> drop_repeated_keys(const value::Tree& tree, const ReadLimits& limits) {
  return Dropping(tree, limits).run();
}

}  // namespace weightmap::torch
