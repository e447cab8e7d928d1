#include "runtime/formats/torch/key_text.hpp"

#include <charconv>

namespace weightmap::torch {

using value::Cell;

namespace {

std::string_view kind_as_key(Value::Kind kind) noexcept {
  switch (kind) {
    case Value::Kind::none:
      return "<none>";
    case Value::Kind::boolean:
      return "<bool>";
    case Value::Kind::real:
      return "<float>";
    case Value::Kind::tuple:
      return "<tuple>";
    default:
      return "<key>";
  }
}

}  // namespace

void KeyText::spell(const Cell& key) noexcept {
  if (!is_integer_) {
    borrowed_ = kind_as_key(value::kind_of(key));
    return;
  }
  const auto number = static_cast<std::int64_t>(key.payload);
  length_ = static_cast<std::size_t>(std::to_chars(digits_, digits_ + sizeof digits_, number).ptr -
                                     digits_);
}

}  // namespace weightmap::torch
