#include "tools/tensor_lookup.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

// Bounds on the work that goes into a hint.
constexpr std::size_t most_names = 200000;
constexpr std::size_t longest_name = 400;
constexpr std::size_t most_suggestions = 3;

// nullopt unless `text` is a JSON array of strings and 64-bit integers. The parts point into
// `json`.
std::optional<std::vector<PathPart>> parse_path(const std::string& text, Json& json) {
  if (!text.starts_with("[")) return std::nullopt;
  json = Json::parse(text, nullptr, false);
  if (!json.is_array()) return std::nullopt;
  std::vector<PathPart> path;
  for (const Json& part : json) {
    if (part.is_string())
      path.emplace_back(part.get_ref<const std::string&>());
    else if (part.is_number_integer())
      path.emplace_back(part.get<std::int64_t>());
    else
      return std::nullopt;
  }
  return path;
}

// How far `name` is from what was asked for; nullopt for nothing in common. A name that contains
// the question counts as a few slips of the finger.
std::optional<std::size_t> distance_of(std::string_view wanted, std::string_view name) {
  constexpr std::size_t slips = 3;
  const std::size_t limit = std::clamp<std::size_t>(wanted.size() / 3, 1, 16);
  const std::size_t distance = edit_distance(wanted, name, limit);
  const bool contained = wanted.size() > 1 && name.find(wanted) != std::string_view::npos;
  if (contained) return std::min(distance, slips);
  return distance <= limit ? std::optional(distance) : std::nullopt;
}

std::vector<std::string_view> nearest_names(const Checkpoint& checkpoint, std::string_view wanted) {
  std::vector<std::pair<std::size_t, std::string_view>> near;
  const auto tensors = checkpoint.tensors();
  if (wanted.size() > longest_name) return {};
  for (std::size_t i = 0; i < std::min(tensors.size(), most_names); ++i) {
    const std::string_view name = tensors[i].name;
    if (name.size() > longest_name) continue;
    if (const std::optional<std::size_t> distance = distance_of(wanted, name))
      near.emplace_back(*distance, name);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < std::min(near.size(), most_suggestions); ++i)
    names.push_back(near[i].second);
  return names;
}

bool is_ambiguous(const Checkpoint& checkpoint, std::string_view name) {
  for (const NamedTensor& tensor : checkpoint.tensors())
    if (tensor.name == name) return true;
  return false;
}

std::string hint(const Checkpoint& checkpoint, std::string_view wanted) {
  const std::vector<std::string_view> names = nearest_names(checkpoint, wanted);
  if (names.empty()) return "; weightmap ls lists them";
  std::string text = "; did you mean ";
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + printable(names[i]);
  return text + "?";
}

}  // namespace

Result<FoundTensor> look_up(const Checkpoint& checkpoint, const std::string& name) {
  const Result<NamedTensor> tensor = checkpoint.get(name);
  if (tensor) return FoundTensor{name, tensor->view};
  Json json;
  if (const auto path = parse_path(name, json))
    if (const std::optional<TensorView> view = checkpoint.find_path(*path))
      return FoundTensor{name, *view};
  Error error = tensor.error();
  if (is_ambiguous(checkpoint, name))
    error.message += " (TENSOR may be one of these paths)";
  else
    error = {ErrorCode::invalid_argument,
             "has no tensor named " + printable(name) + hint(checkpoint, name),
             Error::no_offset,
             {}};
  return tl::unexpected<Error>(std::move(error));
}

std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > limit) return limit + 1;
  // row[j]: distance between the first i bytes of b and the first j of a.
  std::vector<std::size_t> row(a.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= b.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    std::size_t smallest = row[0];
    for (std::size_t j = 1; j < row.size(); ++j) {
      const std::size_t replaced = diagonal + (a[j - 1] == b[i - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      smallest = std::min(smallest, row[j]);
    }
    if (smallest > limit) return limit + 1;
  }
  return std::min(row.back(), limit + 1);
}

}  // namespace weightmap::cli
