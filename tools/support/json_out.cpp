#include "tools/support/json_out.hpp"

namespace weightmap::cli {
namespace {

Json describe_path(const std::vector<PathPart>& path) {
  Json json = Json::array();
  for (const PathPart& part : path) {
    if (part.is_integer())
      json.push_back(part.integer());
    else
      json.push_back(part.key());
  }
  return json;
}

// Returns false only for a reserved storage that is not filled in yet.
bool is_written(const Checkpoint& checkpoint, const NamedTensor& tensor) {
  const std::optional<ReservedStorages>& reserved = checkpoint.info().reserved;
  return !reserved || !reserved->is_unwritten(tensor.storage);
}

}  // namespace

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json describe(const Checkpoint& checkpoint, const NamedTensor& tensor) {
  const TensorView& view = tensor.view;
  Json described = {{"name", tensor.name},
                    {"path", describe_path(checkpoint.path(tensor.index))},
                    {"dtype", to_string(view.dtype())},
                    {"shape", view.shape()},
                    {"strides", view.strides()},
                    {"storage", tensor.storage},
                    {"storage_offset", tensor.storage_offset},
                    {"file_offset", tensor.file_offset},
                    {"nbytes", view.nbytes()},
                    {"contiguous", view.is_contiguous()},
                    {"zero_copy", tensor.is_zero_copy()},
                    {"requires_grad", tensor.requires_grad},
                    {"location", tensor.location},
                    {"conjugate", view.is_conjugate()},
                    {"negative", view.is_negative()},
                    {"written", is_written(checkpoint, tensor)}};
  if (checkpoint.source_count() > 1 && !tensor.is_copied)
    described["file"] = checkpoint.source(tensor.source).path.native();
  return described;
}

Json describe(const Error& error) {
  const bool placed = error.file_offset != Error::no_offset;
  return {{"code", to_string(error.code)},
          {"message", error.message},
          {"file_offset", placed ? Json(error.file_offset) : Json(nullptr)}};
}

}  // namespace weightmap::cli
