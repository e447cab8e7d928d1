#include "runtime/formats/torch/tensor_name.hpp"

#include <algorithm>
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

std::string joined_name(const value::Tree& tree, const std::vector<PathNode>& paths,
                        std::uint32_t path, const value::Cell& key) {
  if (path == TensorSpec::is_root) return {};
  std::vector<std::uint32_t> chain;
  for (std::uint32_t node = path; paths[node].depth != 0; node = paths[node].parent)
    chain.push_back(node);
  std::string name;
  std::for_each(chain.rbegin(), chain.rend(), [&](std::uint32_t node) {
    name.append(KeyText(tree, paths[node].key).text()).push_back('.');
  });
  return name.append(KeyText(tree, key).text());
}

}  // namespace weightmap::torch
