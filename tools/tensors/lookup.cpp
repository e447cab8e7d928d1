#include "tools/tensors/lookup.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/value.hpp"

namespace weightmap::cli {
namespace {

// A path as JSON, which owns the text of its parts.
struct TypedPath {
  Json json;
  std::vector<PathPart> parts;
};

// Returns false unless `text` is a JSON array of strings and 64-bit integers.
bool parse_path(const std::string& text, TypedPath& path) {
  if (!text.starts_with("[")) return false;
  path.json = Json::parse(text, nullptr, false);
  if (!path.json.is_array()) return false;
  for (const Json& part : path.json) {
    if (part.is_string())
      path.parts.emplace_back(part.get_ref<const std::string&>());
    else if (part.is_number_integer())
      path.parts.emplace_back(part.get<std::int64_t>());
    else
      return false;
  }
  return true;
}

// "label (<U6)" for "label".
std::optional<std::string> find_unlisted(const CheckpointInfo& info, const std::string& name) {
  for (const std::string& unlisted : info.unsupported)
    if (unlisted == name || unlisted.starts_with(name + " (")) return unlisted;
  return std::nullopt;
}

}  // namespace

Result<FoundTensor> look_up(const Checkpoint& checkpoint, const std::string& name) {
  const Result<NamedTensor> tensor = checkpoint.get(name);
  if (tensor) return FoundTensor{name, tensor->view};
  if (TypedPath path; parse_path(name, path))
    if (const Result<NamedTensor> at = checkpoint.get_path(path.parts))
      return FoundTensor{name, at->view};
  Error error = tensor.error();
  if (error.code == ErrorCode::invalid_argument)  // two tensors have this name
    error.message += " (TENSOR may be one of these paths)";
  else if (const auto unlisted = find_unlisted(checkpoint.info(), name))
    return failure(ErrorCode::unsupported, "has " + printable(*unlisted) +
                                               ", which is not listed as a tensor: it is " +
                                               std::string(unlisted_kinds));
  else if (error.code == ErrorCode::not_found && !error.message.ends_with('?'))
    error.message += "; weightmap ls lists them";
  return tl::unexpected<Error>(std::move(error));
}

Result<NamedValue> look_up_value(const Checkpoint& checkpoint, const std::string& name) {
  TRY_ASSIGN(const Value root, checkpoint.values());
  if (const std::optional<FoundValue> found = find_value(root, name))
    return NamedValue{name, found->value};
  if (TypedPath path; parse_path(name, path))
    if (const std::optional<Value> value = find_value(root, path.parts))
      return NamedValue{name_of(path.parts), *value};
  if (std::ranges::find(left_out_values(checkpoint), name) != left_out_values(checkpoint).end())
    return failure(
        ErrorCode::unsupported,
        "has in \"" + printable(name) +
            "\" an object with a tensor in it, which torch pickled as a whole and weightmap does "
            "not "
            "read: make one file of the folder with torch's dcp_to_torch_save, and open that");
  return failure(ErrorCode::not_found,
                 "has nothing of the name \"" + printable(name) + "\"; weightmap tree shows all");
}

}  // namespace weightmap::cli
