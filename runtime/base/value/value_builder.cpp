#include <limits>
#include <memory_resource>

#include "runtime/base/value/value_builder_state.hpp"
#include "weightmap/value.hpp"

namespace weightmap {

// The caller decides how much it builds, so there is no limit.
ValueBuilder::State::State()
    : builder(*std::pmr::new_delete_resource(),
              {std::numeric_limits<std::uint64_t>::max() / 4, max_depth}) {}

std::span<const value::Cell> ValueBuilder::State::cells(std::span<const Value> values) {
  scratch.clear();
  scratch.reserve(values.size());
  for (const Value& value : values) scratch.push_back(value.cell());
  return scratch;
}

ValueBuilder::ValueBuilder() : state_(std::make_unique<State>()) {}
ValueBuilder::ValueBuilder(ValueBuilder&&) noexcept = default;
ValueBuilder& ValueBuilder::operator=(ValueBuilder&&) noexcept = default;
ValueBuilder::~ValueBuilder() = default;

Value ValueBuilder::boolean(bool value) { return state_->value(state_->builder.boolean(value)); }
Value ValueBuilder::integer(std::int64_t value) {
  return state_->value(state_->builder.integer(value));
}
Value ValueBuilder::big_integer(std::span<const std::byte> digits) {
  return state_->value(state_->builder.big_integer(digits));
}
Value ValueBuilder::real(double value) { return state_->value(state_->builder.real(value)); }
Value ValueBuilder::string(std::string_view utf8) {
  return state_->value(state_->builder.string(utf8));
}
Value ValueBuilder::bytes(std::span<const std::byte> content) {
  return state_->value(state_->builder.bytes(content));
}
Value ValueBuilder::byte_array(std::span<const std::byte> content) {
  return state_->value(state_->builder.byte_array(content));
}
Value ValueBuilder::tuple(std::span<const Value> elements) {
  return state_->value(state_->builder.tuple(state_->cells(elements)));
}
Value ValueBuilder::list(std::span<const Value> elements) {
  return state_->value(state_->builder.list(state_->cells(elements)));
}
Value ValueBuilder::set(std::span<const Value> elements) {
  return state_->value(state_->builder.set(state_->cells(elements)));
}
Value ValueBuilder::frozen_set(std::span<const Value> elements) {
  return state_->value(state_->builder.frozen_set(state_->cells(elements)));
}
Value ValueBuilder::dict(std::span<const Value> items) {
  return state_->value(state_->builder.dict(state_->cells(items)));
}
Value ValueBuilder::global(std::string_view module, std::string_view name) {
  return state_->value(state_->builder.global(module, name));
}
Value ValueBuilder::persistent_id(const Value& id) {
  return state_->value(state_->builder.persistent_id(id.cell()));
}

Value ValueBuilder::object(const Call& call) {
  const value::Cell made = state_->builder.object({.callable = call.callable.cell(),
                                                   .arguments = call.arguments.cell(),
                                                   .is_new_object = call.is_new_object});
  const Value object = state_->value(made);
  fill(object, {call.elements, call.items, call.state});
  return object;
}

void ValueBuilder::fill(const Value& made, const Contents& contents) {
  value::Contents added;
  added.elements = state_->cells(contents.elements);
  state_->builder.fill(made.cell(), added);
  added = {.items = state_->cells(contents.items)};
  if (contents.state) added.state = contents.state->cell();
  state_->builder.fill(made.cell(), added);
}

Result<void> ValueBuilder::check() const { return state_->builder.check(); }

}  // namespace weightmap
