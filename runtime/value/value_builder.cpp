#include "weightmap/value_builder.hpp"

#include <limits>
#include <memory_resource>

#include "runtime/value/value_builder_state.hpp"

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
  value::Call made{call.callable.cell(), call.arguments.cell()};
  state_->scratch.reserve(call.elements.size() + call.items.size());
  state_->cells(call.elements);
  for (const Value& item : call.items) state_->scratch.push_back(item.cell());
  const std::span<const value::Cell> cells(state_->scratch);
  made.elements = cells.first(call.elements.size());
  made.items = cells.subspan(call.elements.size());
  if (call.state) made.state = call.state->cell();
  made.is_new_object = call.is_new_object;
  return state_->value(state_->builder.object(made));
}

Result<void> ValueBuilder::check() const { return state_->builder.check(); }

}  // namespace weightmap
