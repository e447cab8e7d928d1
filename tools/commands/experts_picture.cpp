#include "tools/commands/experts_picture.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/support/text.hpp"
#include "weightmap/on_demand.hpp"

namespace weightmap::cli {
namespace {

// From never to most often, by the logarithm.
constexpr std::string_view shades = " .:-=+*#%@";

struct Layer {
  std::string name;  // "model.layers.0.mlp.experts"
  std::vector<std::uint64_t> uses;
  std::uint64_t used() const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(uses, [](std::uint64_t each) { return each != 0; }));
  }
  std::uint64_t sum() const {
    std::uint64_t all = 0;
    for (const std::uint64_t each : uses) all += each;
    return all;
  }
};

// In the order of the units.
std::vector<Layer> layers_of(const std::vector<Unit>& units,
                             const std::map<std::string, std::uint64_t>& uses) {
  std::vector<Layer> layers;
  std::map<std::string, std::size_t> places;
  for (const Unit& unit : units) {
    const std::string name = unit.name.substr(0, unit.name.rfind('.'));
    const auto [at, is_new] = places.emplace(name, layers.size());
    if (is_new) layers.push_back({name, {}});
    const auto found = uses.find(unit.name);
    layers[at->second].uses.push_back(found == uses.end() ? 0 : found->second);
  }
  return layers;
}

std::string picture_of(const Layer& layer, std::uint64_t most) {
  std::string line = "[";
  for (const std::uint64_t uses : layer.uses) {
    const double part =
        uses == 0 ? 0
                  : std::log1p(static_cast<double>(uses)) / std::log1p(static_cast<double>(most));
    line += shades[static_cast<std::size_t>(std::ceil(part * 9))];
  }
  return line + "]";
}

Json describe_layers(const std::vector<Layer>& layers) {
  Json list = Json::array();
  for (const Layer& layer : layers) list.push_back({{"name", layer.name}, {"uses", layer.uses}});
  return list;
}

}  // namespace

Result<Json> show_experts(Output& out, const Checkpoint& checkpoint, const std::string& profile,
                          const TableStyle& style, bool json) {
  TRY_ASSIGN(const std::vector<Unit> units, expert_units(checkpoint));
  TRY_ASSIGN(const std::vector<UnitUses> lines, read_profile(profile));
  std::map<std::string, std::uint64_t> uses;
  for (const UnitUses& line : lines) uses[line.name] = line.uses;
  const std::vector<Layer> layers = layers_of(units, uses);
  if (json) return describe_layers(layers);
  std::uint64_t most = 1;
  for (const Layer& layer : layers) most = std::max(most, std::ranges::max(layer.uses));
  const std::vector<Column> columns = {{"LAYER", Column::left},
                                       {"EXPERTS", Column::right},
                                       {"USED", Column::right},
                                       {"USES", Column::right},
                                       {"EACH EXPERT, FROM \" \" TO \"@\"", Column::left}};
  print_columns(out, style, columns, layers.size(), [&](std::size_t i) {
    return std::vector<std::string>{printable(layers[i].name),
                                    std::to_string(layers[i].uses.size()),
                                    std::to_string(layers[i].used()),
                                    std::to_string(layers[i].sum()), picture_of(layers[i], most)};
  });
  return Json();
}

}  // namespace weightmap::cli
