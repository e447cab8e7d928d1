// Value: the public cursor over runtime/base/value/tree.hpp.
#include "weightmap/value.hpp"

#include <bit>

#include "runtime/base/value/tree.hpp"
#include "runtime/base/words.hpp"

namespace weightmap {
namespace {

using value::Cell;
using value::Chunk;
using value::Object;
using value::PackedCall;
using value::Sequence;
using value::target_of;
using value::tuple_element;
using enum Value::Kind;

constexpr std::string_view kinds[] = {"none",       "boolean", "integer", "big_integer",
                                      "real",       "string",  "bytes",   "byte_array",
                                      "tuple",      "list",    "dict",    "set",
                                      "frozen_set", "global",  "object",  "persistent_id"};
static_assert(word_of(persistent_id, kinds) == "persistent_id" && word_of(dict, kinds) == "dict");

bool is_packed(const Cell& cell) noexcept { return cell.part != value::whole_value; }

const Object* ordinary_object(const Cell& cell) noexcept {
  const bool ordinary = value::kind_of(cell) == object && !is_packed(cell);
  return ordinary ? target_of<const Object>(cell) : nullptr;
}

// Returns the cells that APPENDS or ADDITEMS added.
const Sequence* elements_of(const Cell& cell) noexcept {
  const Value::Kind kind = value::kind_of(cell);
  if (kind == list || kind == set || kind == frozen_set) return target_of<const Sequence>(cell);
  const Object* as_object = ordinary_object(cell);
  return as_object ? as_object->elements : nullptr;
}

// Returns the keys and values that SETITEMS added.
const Sequence* items_of(const Cell& cell) noexcept {
  if (value::kind_of(cell) == dict) return target_of<const Sequence>(cell);
  const Object* as_object = ordinary_object(cell);
  return as_object ? as_object->items : nullptr;
}

const Cell& cell_at(const void* chunk, std::size_t at) noexcept {
  return static_cast<const Chunk*>(chunk)->cells()[at];
}

// Advances by `step` cells; chunks are never empty.
void advance(const void*& chunk, std::size_t& at, std::size_t step) noexcept {
  const auto* current = static_cast<const Chunk*>(chunk);
  at += step;
  if (at < current->count) return;
  chunk = current->next;
  at = 0;
}

}  // namespace

Value::Kind Value::kind() const noexcept { return value::kind_of(cell()); }

std::optional<bool> Value::boolean() const noexcept {
  if (kind() != Kind::boolean) return std::nullopt;
  return words_[1] != 0;
}

std::optional<std::int64_t> Value::integer() const noexcept {
  if (kind() != Kind::integer) return std::nullopt;
  return static_cast<std::int64_t>(words_[1]);
}

std::optional<double> Value::real() const noexcept {
  if (kind() != Kind::real) return std::nullopt;
  return std::bit_cast<double>(words_[1]);
}

std::optional<std::string_view> Value::string() const noexcept {
  if (kind() != Kind::string) return std::nullopt;
  return tree_->text(cell().payload, cell().count);
}

std::optional<std::span<const std::byte>> Value::bytes() const noexcept {
  if (kind() != Kind::bytes && kind() != Kind::byte_array) return std::nullopt;
  return std::as_bytes(std::span(tree_->text(cell().payload, cell().count)));
}

std::optional<std::span<const std::byte>> Value::big_integer() const noexcept {
  if (kind() != Kind::big_integer) return std::nullopt;
  return std::as_bytes(std::span(tree_->text(cell().payload, cell().count)));
}

std::size_t Value::size() const noexcept {
  if (kind() == tuple) return cell().count;
  const Sequence* sequence = elements_of(cell());
  return sequence ? sequence->count : 0;
}

std::size_t Value::item_count() const noexcept {
  const Sequence* sequence = items_of(cell());
  return sequence ? sequence->count / 2 : 0;
}

Value::Range<Value::Iterator> Value::elements() const noexcept {
  Iterator first;
  first.parent_ = *this;
  first.left_ = size();
  if (const Sequence* sequence = elements_of(cell())) first.chunk_ = sequence->first;
  return {first, {}};
}

Value::Range<Value::ItemIterator> Value::items() const noexcept {
  ItemIterator first;
  first.tree_ = tree_;
  first.left_ = item_count();
  if (const Sequence* sequence = items_of(cell())) first.chunk_ = sequence->first;
  return {first, {}};
}

Value Value::operator[](std::size_t index) const noexcept {
  if (kind() == tuple) return {tree_, tuple_element(cell(), index)};
  const auto* chunk = elements_of(cell())->first;
  for (; index >= chunk->count; chunk = chunk->next) index -= chunk->count;
  return {tree_, chunk->cells()[index]};
}

std::optional<Value> Value::find(std::string_view key) const noexcept {
  std::optional<Value> found;
  for (const auto& [item_key, value] : items())
    if (item_key.string() == key) found = value;
  return found;
}

std::string_view Value::module() const noexcept {
  return kind() == global ? target_of<const value::Global>(cell())->module : std::string_view{};
}

std::string_view Value::name() const noexcept {
  return kind() == global ? target_of<const value::Global>(cell())->name : std::string_view{};
}

Value Value::callable() const noexcept {
  if (const Object* ordinary = ordinary_object(cell())) return {tree_, ordinary->callable};
  if (kind() != object) return {};
  const value::PackedHeader& header = *target_of<const PackedCall>(cell())->shape->header;
  const bool hooks = cell().part == value::packed_hooks;
  return {tree_, hooks ? header.hooks_callable : header.callable};
}

Value Value::arguments() const noexcept {
  if (const Object* ordinary = ordinary_object(cell())) return {tree_, ordinary->arguments};
  if (kind() != object) return {};
  if (cell().part == value::packed_hooks) return {tree_, value::make_cell(tuple, std::uint64_t{0})};
  const PackedCall& call = *target_of<const PackedCall>(cell());
  return {tree_, value::packed_arguments_cell(call)};
}

std::optional<Value> Value::state() const noexcept {
  const Object* ordinary = ordinary_object(cell());
  if (ordinary == nullptr || !ordinary->has_state) return std::nullopt;
  return Value{tree_, ordinary->state};
}

bool Value::is_new_object() const noexcept {
  const Object* ordinary = ordinary_object(cell());
  return ordinary != nullptr && ordinary->is_new_object;
}

Value Value::persistent_id() const noexcept {
  if (kind() != Kind::persistent_id) return {};
  if (!is_packed(cell())) return {tree_, *target_of<const Cell>(cell())};
  return {tree_, value::packed_id_cell(*target_of<const PackedCall>(cell()))};
}

std::uint32_t Value::position() const noexcept { return value::position_of(cell()).value_or(0); }

std::uint32_t Value::changed_at() const noexcept {
  const Cell of = cell();
  if (const Object* ordinary = ordinary_object(of)) return ordinary->changed_at;
  const Sequence* sequence = kind() == dict ? items_of(of) : elements_of(of);
  return sequence ? sequence->changed_at : 0;
}

std::optional<std::uint32_t> Value::state_changed_at() const noexcept {
  const Object* ordinary = ordinary_object(cell());
  const std::optional<Value> state = this->state();
  if (ordinary == nullptr || !state) return std::nullopt;
  const auto is_late = [&](const Value& part) {
    return part.kind() == dict && part.changed_at() > ordinary->state_at;
  };
  if (is_late(*state)) return state->changed_at();
  if (state->kind() == tuple && state->size() == 2)
    for (const Value& part : state->elements())
      if (is_late(part)) return part.changed_at();
  return std::nullopt;
}

bool Value::may_be_shared() const noexcept { return value::may_be_shared(cell()); }

Value Value::Iterator::operator*() const noexcept {
  const value::Tree* tree = parent_.tree_;
  if (parent_.kind() == tuple) return {tree, tuple_element(parent_.cell(), at_)};
  return {tree, cell_at(chunk_, at_)};
}

Value::Iterator& Value::Iterator::operator++() noexcept {
  --left_;
  if (chunk_ != nullptr)
    advance(chunk_, at_, 1);
  else
    ++at_;
  return *this;
}

std::pair<Value, Value> Value::ItemIterator::operator*() const noexcept {
  return {Value{tree_, cell_at(chunk_, at_)}, Value{tree_, cell_at(chunk_, at_ + 1)}};
}

Value::ItemIterator& Value::ItemIterator::operator++() noexcept {
  --left_;
  advance(chunk_, at_, 2);
  return *this;
}

std::string_view to_string(Value::Kind kind) noexcept { return word_of(kind, kinds); }

}  // namespace weightmap
