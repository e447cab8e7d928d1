#include "tools/shards/flat_checkpoint.hpp"

#include <unordered_set>
#include <utility>

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

Error about_path(const std::filesystem::path& path, ErrorCode code, std::string message) {
  return {.code = code, .message = std::move(message), .file = printable(path.native())};
}

bool is_dict(const Value& root) {
  const Value type = root.callable();
  return root.kind() == Value::Kind::dict ||
         (type.module() == "collections" && type.name() == "OrderedDict");
}

// Whether the value is a tensor that is its storage, shape and strides, and no more.
bool is_plain(Value value) {
  if (value.callable().module() != "torch._utils") return false;
  if (value.callable().name() == "_rebuild_parameter") value = value.arguments()[0];
  const std::string_view function = value.callable().name();
  return function == "_rebuild_tensor" || function == "_rebuild_tensor_v2" ||
         function == "_rebuild_tensor_v3";
}

}  // namespace

Result<FlatCheckpoint> FlatCheckpoint::open(const std::filesystem::path& path) {
  Result<Checkpoint> checkpoint = Checkpoint::open(path, OpenOptions::to_look());
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  Result<ArchiveReader> archive = ArchiveReader::open(path);
  if (!archive) return tl::unexpected<Error>(archive.error());
  if (!checkpoint->is_current())
    return tl::unexpected<Error>(
        about_path(path, ErrorCode::io, "the file was replaced while it was opened"));
  if (checkpoint->info().reserved && !checkpoint->info().reserved->is_sealed)
    return tl::unexpected<Error>(
        about_path(path, ErrorCode::unsupported,
                   "the file has reserved storages and is not sealed, so it may change yet"));
  FlatCheckpoint flat(path, std::move(*checkpoint), std::move(*archive));
  if (Result<void> ok = flat.list_tensors(); !ok) return tl::unexpected<Error>(ok.error());
  return flat;
}

Result<void> FlatCheckpoint::list_tensors() {
  const Value root = checkpoint_.root();
  const auto refuse = [this](ErrorCode code, std::string message) {
    return tl::unexpected<Error>(about_path(path_, code, std::move(message)));
  };
  if (!is_dict(root))
    return refuse(ErrorCode::unsupported,
                  "is not a dict of tensors, but of kind " + std::string(to_string(root.kind())));
  std::unordered_set<std::string_view> names;
  for (const auto& [key, value] : root.items()) {
    const std::optional<std::string_view> name = key.string();
    if (!name)
      return refuse(ErrorCode::unsupported, "is not a dict of tensors: a key is of kind " +
                                                std::string(to_string(key.kind())));
    std::optional<NamedTensor> tensor = checkpoint_.tensor(value);
    if (!tensor || !is_plain(value) || tensor->view.is_conjugate() || tensor->view.is_negative())
      return refuse(ErrorCode::unsupported,
                    "is not a dict of plain tensors: " + printable(*name) + " is " +
                        (tensor ? "a tensor with more to it than its elements"
                                : "of kind " + std::string(to_string(value.kind()))));
    if (!names.insert(*name).second)
      return refuse(ErrorCode::invalid_argument, "has " + printable(*name) + " twice");
    tensor->name = *name;
    tensors_.push_back(*tensor);
  }
  return {};
}

}  // namespace weightmap::cli
