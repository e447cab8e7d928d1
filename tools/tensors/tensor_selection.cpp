#include "tools/tensors/tensor_selection.hpp"

#include <algorithm>
#include <cstdint>

#include "runtime/base/name_pattern.hpp"
#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/named_tensor.hpp"
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

// Collects tensors, each once, except excluded ones.
class Chosen {
 public:
  Chosen(const Checkpoint& checkpoint, const std::vector<std::string>& except)
      : except_(except.begin(), except.end()), taken_(checkpoint.tensors().size()) {}

  void take(const NamedTensor& tensor) {
    if (taken_[tensor.index] || is_left_out(tensor.name)) return;
    taken_[tensor.index] = true;
    tensors_.push_back(tensor.index);
  }
  std::vector<std::size_t> tensors() && { return std::move(tensors_); }

 private:
  bool is_left_out(std::string_view name) const {
    return std::any_of(except_.begin(), except_.end(),
                       [name](const NamePattern& pattern) { return pattern.matches(name); });
  }

  std::vector<NamePattern> except_;
  std::vector<bool> taken_;
  std::vector<std::size_t> tensors_;
};

// Returns the error, with suggestions for a pattern without wildcards.
Error nothing_matches(const Checkpoint& checkpoint, const std::string& text) {
  const NamePattern pattern(text);
  if (!pattern.has_wildcards())
    if (const Result<NamedTensor> tensor = checkpoint.get(pattern.name()); !tensor)
      return tensor.error();
  return {ErrorCode::not_found, "no tensor matches \"" + printable(text) + "\"", Error::no_offset};
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

Result<std::vector<std::size_t>> select(const Checkpoint& checkpoint,
                                        const TensorSelection& selection) {
  Chosen chosen(checkpoint, selection.except);
  for (const std::string& pattern : selection.patterns) {
    const std::vector<std::size_t> matching = match_tensors(checkpoint, pattern);
    if (matching.empty()) return tl::unexpected<Error>(nothing_matches(checkpoint, pattern));
    for (std::size_t index : matching) chosen.take(checkpoint.tensors()[index]);
  }
  for (std::size_t index : selection.also) chosen.take(checkpoint.tensors()[index]);
  if (selection.patterns.empty() && selection.also.empty())
    for (const NamedTensor& tensor : checkpoint.tensors()) chosen.take(tensor);
  return std::move(chosen).tensors();
}

}  // namespace weightmap::cli
