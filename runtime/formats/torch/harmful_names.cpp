#include "runtime/formats/torch/harmful_names.hpp"

#include <algorithm>
#include <span>

#include "runtime/formats/torch/names.hpp"

namespace weightmap::torch {
namespace {

// A pickle may hold millions of globals, so the lookup is a binary search.
constexpr auto harmful_by_module = [] {
  auto sorted = harmful_names;
  std::sort(sorted.begin(), sorted.end(),
            [](const HarmfulName& a, const HarmfulName& b) { return a.module < b.module; });
  return sorted;
}();

std::span<const HarmfulName> harmful_names_of(std::string_view module) noexcept {
  struct ByModule {
    bool operator()(const HarmfulName& a, std::string_view b) const { return a.module < b; }
    bool operator()(std::string_view a, const HarmfulName& b) const { return a < b.module; }
  };
  const auto [first, last] =
      std::equal_range(harmful_by_module.begin(), harmful_by_module.end(), module, ByModule{});
  return {first, last};
}

bool is_listed_as_harmful(std::string_view module, std::string_view name) noexcept {
  for (const HarmfulName& harmful : harmful_names_of(module))
    if (harmful.name.empty() || harmful.name == name) return true;
  for (std::size_t dot = module.find('.'); dot != std::string_view::npos;
       dot = module.find('.', dot + 1))
    for (const HarmfulName& harmful : harmful_names_of(module.substr(0, dot)))
      if (harmful.reach == HarmfulName::with_submodules) return true;
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
