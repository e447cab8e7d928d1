#include "tools/tensor_lookup.hpp"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tools/support/json_out.hpp"

namespace weightmap::cli {
namespace {

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

}  // namespace

Result<FoundTensor> look_up(const Checkpoint& checkpoint, const std::string& name) {
  const Result<NamedTensor> tensor = checkpoint.get(name);
  if (tensor) return FoundTensor{name, tensor->view};
  Json json;
  if (const auto path = parse_path(name, json))
    if (const std::optional<TensorView> view = checkpoint.find_path(*path))
      return FoundTensor{name, *view};
  Error error = tensor.error();
  if (error.code == ErrorCode::invalid_argument)  // two tensors have this name
    error.message += " (TENSOR may be one of these paths)";
  else if (error.code == ErrorCode::not_found && !error.message.ends_with('?'))
    error.message += "; weightmap ls lists them";
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace weightmap::cli
