#include "weightmap/convert.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/write/conversion.hpp"

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

// Decides which files the target path of a conversion means.
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

// The folder of the new files, which is removed if nothing was written to it.
class NewFolder {
 public:
  explicit NewFolder(std::filesystem::path path) : path_(std::move(path)) {}
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder() {
    std::error_code ignored;
    if (is_new_) std::filesystem::remove(path_, ignored);
  }

  Result<void> make() {
    if (path_.empty()) return {};
    std::error_code error;
    is_new_ = !std::filesystem::exists(path_, error);
    std::filesystem::create_directories(path_, error);
    if (!error) return {};
    return about_file({ErrorCode::io, "cannot make the folder: " + error.message()}, path_);
  }

 private:
  std::filesystem::path path_;
  bool is_new_ = false;
};

// True for one torch archive or stream that becomes an archive of its kind; it is kept whole.
bool is_kept(const ConversionSources& sources, const ConversionTarget& target,
             const ConvertOptions& options) {
  if (target.has_index || options.max_shard_bytes != 0 || options.tensors_only) return false;
  if (target.format == WrittenFormat::pt2) return sources.is_one(Format::pt2);
  return target.format == WrittenFormat::pt &&
         (sources.is_one(Format::torch_zip) || sources.is_one(Format::torchscript) ||
          sources.is_one(Format::torch_legacy) || sources.is_one(Format::pickle));
}

// Returns the source whose values can be written with its tensors, or nullptr.
const Checkpoint* nested_source(const ConversionSources& sources, const ConversionTarget& target,
                                const ConvertOptions& options) {
  const Checkpoint& first = sources.checkpoints().front();
  const bool is_nested = sources.checkpoints().size() == 1 && first.info().format == Format::dcp &&
                         !target.has_index && options.max_shard_bytes == 0 && !options.tensors_only;
  return is_nested ? &first : nullptr;
}

void set(SafetensorsMetadata& metadata, std::string_view key, std::string_view text) {
  const auto known = std::ranges::find(metadata, key, &SafetensorsMetadata::value_type::first);
  if (known == metadata.end())
    metadata.emplace_back(key, text);
  else
    known->second = text;
}

// transformers refuses a file without a format.
SafetensorsMetadata metadata_of(const ConversionSources& sources, const ConvertOptions& options) {
  SafetensorsMetadata metadata;
  if (sources.is_one(Format::safetensors))
    for (const auto& [key, text] : sources.checkpoints().front().root().items())
      set(metadata, key.string().value_or(""), text.string().value_or(""));
  set(metadata, "format", "pt");
  for (const auto& [key, text] : options.metadata) set(metadata, key, text);
  return metadata;
}

Result<SafetensorsTensor> safetensor(const SourceTensor& tensor) {
  if (!tensor.is_in_pieces())
    return SafetensorsTensor::of(std::string(tensor.name), tensor.first_piece().view);
  TRY_ASSIGN(RecordContent content, content_of(*tensor.checkpoint, tensor.name));
  return SafetensorsTensor{.name = std::string(tensor.name),
                           .dtype = tensor.whole.dtype,
                           .shape = tensor.whole.sizes,
                           .content = std::move(content)};
}

Result<ConvertReport> write_as_safetensors(const std::vector<SourceTensor>& from,
                                           const SafetensorsMetadata& metadata,
                                           const ConversionTarget& target,
                                           const ConvertOptions& options) {
  std::vector<SafetensorsTensor> tensors;
  for (const SourceTensor& tensor : from) {
    TRY_ASSIGN(SafetensorsTensor made, safetensor(tensor));
    tensors.push_back(std::move(made));
  }
  TRY_ASSIGN(SafetensorsReport written,
             write_safetensors(std::move(tensors), metadata, target.path,
                               {.max_file_bytes = options.max_shard_bytes,
                                .always_index = target.has_index,
                                .shared = options.shared.value_or(SharedElements::refuse),
                                .file = options.file,
                                .progress = options.progress}));
  ConvertReport report;
  report.tensors = report.storages = from.size() - written.dropped.size();
  report.new_bytes = written.bytes;
  for (const SafetensorsReport::File& file : written.files) report.files.push_back(file.path);
  report.dropped = std::move(written.dropped);
  return report;
}

Result<ConvertReport> write_tensors(const ConversionSources& sources,
                                    const ConversionTarget& target, const ConvertOptions& options) {
  TRY_ASSIGN(const std::vector<SourceTensor> tensors, sources.tensors(options.order));
  const bool is_torch = target.format == WrittenFormat::pt;
  const SafetensorsMetadata metadata =
      is_torch ? SafetensorsMetadata() : metadata_of(sources, options);
  const Checkpoint* const nested = is_torch ? nested_source(sources, target, options) : nullptr;
  if (nested != nullptr) TRY(nested->values());
  std::vector<std::string> names;
  for (const Checkpoint& checkpoint : sources.checkpoints()) {
    TRY_ASSIGN(std::vector<std::string> more,
               left_out(checkpoint, options.open, metadata, nested != nullptr));
    std::ranges::move(more, std::back_inserter(names));
  }
  if (tensors.empty() && !names.empty()) return sources.refuse_values(names);
  TRY_ASSIGN(ConvertReport report, is_torch
                                       ? write_torch_dict(tensors, target, options, nested)
                                       : write_as_safetensors(tensors, metadata, target, options));
  report.left_out = std::move(names);
  return report;
}

}  // namespace

Result<ConvertReport> convert(std::span<const std::filesystem::path> from,
                              const std::filesystem::path& to, const ConvertOptions& options) {
  TRY_ASSIGN(const ConversionTarget target, conversion_target(to, options));
  TRY_ASSIGN(ConversionSources sources, ConversionSources::open(from, options.open));
  const bool keeps_all = is_kept(sources, target, options);
  if (target.format == WrittenFormat::pt2 && !keeps_all)
    return about_file({ErrorCode::unsupported,
                       "is no single archive of torch.export, and only such a one can be written "
                       "as .pt2"},
                      from.front());
  const std::uint64_t old_bytes = sources.bytes();
  NewFolder folder(target.folder);
  TRY(folder.make());
  TRY_ASSIGN(ConvertReport report,
             keeps_all ? relayout(std::move(sources).take_one(), from.front(), target, options)
                       : write_tensors(sources, target, options));
  report.format = target.format;
  report.old_bytes = old_bytes;
  if (report.files.empty()) report.files.push_back(target.path);
  return report;
}

Result<ConvertReport> convert(const std::filesystem::path& from, const std::filesystem::path& to,
                              const ConvertOptions& options) {
  return convert(std::span(&from, 1), to, options);
}

Result<void> check_target(const std::filesystem::path& to, const ConvertOptions& options) {
  TRY_ASSIGN(const ConversionTarget target, conversion_target(to, options));
  static_cast<void>(target);
  return {};
}

}  // namespace weightmap
