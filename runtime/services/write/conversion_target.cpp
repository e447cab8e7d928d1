#include "runtime/services/write/conversion_target.hpp"

#include <string>
#include <string_view>
#include <system_error>

#include "runtime/base/try.hpp"

namespace weightmap {
namespace {

constexpr std::string_view index_ending = ".index.json";

std::optional<WrittenFormat> format_by_name(const std::filesystem::path& path) {
  const std::string ending = path.extension().native();
  if (ending == ".safetensors") return WrittenFormat::safetensors;
  if (ending == ".pt" || ending == ".pth" || ending == ".bin") return WrittenFormat::pt;
  if (ending == ".pt2") return WrittenFormat::pt2;
  return std::nullopt;
}

bool is_folder(const std::filesystem::path& to) {
  std::error_code unknown;
  return to.filename().empty() || std::filesystem::is_directory(to, unknown);
}

Result<ConversionTarget> in_folder(const std::filesystem::path& to, const ConvertOptions& options) {
  const WrittenFormat format = options.format.value_or(WrittenFormat::safetensors);
  if (format == WrittenFormat::pt2)
    return failure(ErrorCode::invalid_argument, "a .pt2 archive is one file; say its name");
  const char* const name =
      format == WrittenFormat::safetensors ? "model.safetensors" : "pytorch_model.bin";
  return ConversionTarget{.format = format, .path = to / name, .folder = to};
}

Result<ConversionTarget> by_name(const std::filesystem::path& to, const ConvertOptions& options) {
  ConversionTarget target{.format = {}, .path = to, .folder = {}};
  std::string name = to.filename().native();
  if (name.size() > index_ending.size() && name.ends_with(index_ending)) {
    name.resize(name.size() - index_ending.size());
    target.path = to.parent_path() / name;
    target.has_index = true;
  }
  const std::optional<WrittenFormat> named = format_by_name(target.path);
  if (!named && !options.format)
    return failure(ErrorCode::invalid_argument,
                   "the target must end in .safetensors, .pt, .pth, .bin or .pt2, in one of these "
                   "and .index.json, or in a slash for a folder, unless the format is given");
  target.format = options.format.value_or(*named);
  return target;
}

Result<void> refuse_for(const char* format, const char* option, const char* why = "") {
  return failure(ErrorCode::invalid_argument,
                 std::string(option) + " is for " + format + " only" + why);
}

Result<void> check_torch(const ConversionTarget& target, const ConvertOptions& options) {
  if (!options.metadata.empty()) return refuse_for("safetensors", "metadata");
  if (options.shared)
    return refuse_for("safetensors", "shared", ": a torch file says which tensors share elements");
  if (target.format == WrittenFormat::pt) return {};
  if (target.has_index || options.max_shard_bytes != 0 || options.tensors_only)
    return failure(ErrorCode::invalid_argument,
                   "a .pt2 archive is one file of its own kind: no shards, and not tensors only");
  return {};
}

Result<void> check_safetensors(const ConvertOptions& options) {
  if (options.alignment)
    return refuse_for("torch files", "an alignment",
                      ": safetensors lie one behind the other, without holes");
  if (options.crc32) return refuse_for("torch files", "crc");
  return {};
}

}  // namespace

Result<ConversionTarget> conversion_target(const std::filesystem::path& to,
                                           const ConvertOptions& options) {
  TRY_ASSIGN(ConversionTarget target,
             is_folder(to) ? in_folder(to, options) : by_name(to, options));
  TRY(target.format == WrittenFormat::safetensors ? check_safetensors(options)
                                                  : check_torch(target, options));
  const bool may_be_set = target.has_index || options.max_shard_bytes != 0;
  if (may_be_set && !target.path.has_extension())
    return failure(ErrorCode::invalid_argument,
                   "the path of what may be a set of files must have an ending");
  return target;
}

Result<void> check_target(const std::filesystem::path& to, const ConvertOptions& options) {
  TRY_ASSIGN(const ConversionTarget target, conversion_target(to, options));
  static_cast<void>(target);
  return {};
}

}  // namespace weightmap
