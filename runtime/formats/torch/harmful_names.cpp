#include "runtime/formats/torch/harmful_names.hpp"

#include <algorithm>

#include "runtime/formats/torch/names.hpp"

namespace weightmap::torch {
namespace {

// A pickle may hold millions of globals, so the lookup is a binary search.
constexpr auto harmful_by_module = [] {
  auto sorted = harmful_names;
  std::ranges::sort(sorted, {}, &HarmfulNames::module);
  return sorted;
}();

const HarmfulNames* harmful_names_of(std::string_view module) noexcept {
  const auto* const row =
      std::ranges::lower_bound(harmful_by_module, module, {}, &HarmfulNames::module);
  return row != harmful_by_module.end() && row->module == module ? row : nullptr;
}

bool is_among(std::string_view names, std::string_view wanted) noexcept {
  for (;;) {
    const std::size_t end = names.find(' ');
    if (names.substr(0, end) == wanted) return true;
    if (end == names.npos) return false;
    names.remove_prefix(end + 1);
  }
}

bool is_listed_as_harmful(std::string_view module, std::string_view name) noexcept {
  const HarmfulNames* row = harmful_names_of(module);
  if (row != nullptr && (row->names.empty() || is_among(row->names, name))) return true;
  for (std::size_t dot = module.find('.'); dot != std::string_view::npos;
       dot = module.find('.', dot + 1)) {
    row = harmful_names_of(module.substr(0, dot));
    if (row != nullptr && row->reach == HarmfulNames::with_submodules) return true;
  }
  return false;
}

}  // namespace

bool is_harmful(std::string_view module, std::string_view name) noexcept {
  if (is_listed_as_harmful(module, name)) return true;
  const GlobalName current = in_python_3(module, name);
  return (current.module != module || current.name != name) &&
         is_listed_as_harmful(current.module, current.name);
}

}  // namespace weightmap::torch
