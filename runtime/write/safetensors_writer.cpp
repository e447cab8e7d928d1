#include "weightmap/safetensors_writer.hpp"

#include <bit>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <unordered_set>

#include "runtime/base/element_walk.hpp"
#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/bytes/utf8.hpp"
#include "runtime/json/json_text.hpp"
#include "runtime/write/content_file.hpp"
#include "runtime/write/safetensors_layout.hpp"
#include "runtime/write/shared_elements.hpp"
#include "runtime/write/view_content.hpp"

namespace weightmap {
namespace {

using Files = std::vector<std::vector<std::size_t>>;  // the tensors of each

constexpr std::string_view extension = ".safetensors";

Result<void> check_tensors(const std::vector<SafetensorsTensor>& tensors) {
  std::unordered_set<std::string_view> names;
  for (const SafetensorsTensor& tensor : tensors) {
    TRY(check_tensor(tensor));
    if (!names.insert(tensor.name).second)
      return failure(ErrorCode::invalid_argument,
                     "there are two tensors called " + bytes::quote(tensor.name));
  }
  return {};
}

Result<void> check_metadata(const SafetensorsMetadata& metadata) {
  std::unordered_set<std::string_view> keys;
  for (const auto& [key, text] : metadata) {
    if (!bytes::is_utf8(key) || !bytes::is_utf8(text))
      return failure(ErrorCode::invalid_argument,
                     "the metadata " + bytes::quote(key) + " is not UTF-8");
    if (!keys.insert(key).second)
      return failure(ErrorCode::invalid_argument,
                     "the metadata has " + bytes::quote(key) + " twice");
  }
  return {};
}

Files divide(const std::vector<SafetensorsTensor>& tensors, std::uint64_t max_file_bytes) {
  Files files(1);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t size = tensors[i].content.size();
    const bool fits =
        max_file_bytes == 0 || (bytes <= max_file_bytes && size <= max_file_bytes - bytes);
    if (!fits && !files.back().empty()) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(i);
    bytes += size;
  }
  return files;
}

std::string five_digits(std::size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

std::filesystem::path path_of_file(const std::filesystem::path& path, std::size_t index,
                                   std::size_t count) {
  if (count == 1) return path;
  std::string name = path.stem().native() + "-" + five_digits(index + 1) + "-of-";
  return path.parent_path() / (name + five_digits(count)).append(extension);
}

// As transformers writes it.
std::string index_text(const std::vector<SafetensorsTensor>& tensors, const Files& files,
                       const std::filesystem::path& path, std::uint64_t tensor_bytes) {
  std::map<std::string_view, std::size_t> file_of;
  for (std::size_t i = 0; i < files.size(); ++i)
    for (const std::size_t tensor : files[i]) file_of.emplace(tensors[tensor].name, i);
  std::string text = "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(tensor_bytes) +
                     "\n  },\n  \"weight_map\": {";
  std::string_view before = "\n    ";
  for (const auto& [name, file] : file_of) {
    text += before;
    json::append_string(text, name, json::BeyondAscii::escaped);
    text += ": ";
    json::append_string(text, path_of_file(path, file, files.size()).filename().native(),
                        json::BeyondAscii::escaped);
    before = ",\n    ";
  }
  return text + "\n  }\n}\n";
}

// The files of one write, none of which has its name before all are whole.
class NewSet {
 public:
  NewSet(const SafetensorsOptions& options, std::uint64_t tensor_bytes)
      : options_(options), written_(options.progress, tensor_bytes) {}

  // Gets the space.
  Result<void> add(std::filesystem::path path, std::uint64_t bytes) {
    TRY_ASSIGN(ContentFile file,
               ContentFile::create(std::move(path), bytes, options_.file, written_));
    files_.push_back(std::move(file));
    return {};
  }
  std::vector<ContentFile>& files() noexcept { return files_; }

  // Gives all their names, in order.
  Result<void> commit() {
    std::vector<std::filesystem::path> made;
    for (ContentFile& file : files_) {
      std::error_code ignored;
      const bool is_free = !std::filesystem::exists(symlink_status(file.path(), ignored));
      // A file that got its name, of which the disk does not know for sure, is taken back, too;
      // one that is all there is stays, as NewFile says.
      if (is_free && files_.size() > 1) made.push_back(file.path());
      Result<void> ok = file.commit();
      if (ok) continue;
      for (const std::filesystem::path& path : made) std::filesystem::remove(path, ignored);
      return ok;
    }
    written_.finish();
    return {};
  }

 private:
  const SafetensorsOptions& options_;
  WrittenBytes written_;
  std::vector<ContentFile> files_;
};

class SafetensorsWriting {
 public:
  SafetensorsWriting(std::vector<SafetensorsTensor> tensors, const SafetensorsMetadata& metadata,
                     const std::filesystem::path& path, const SafetensorsOptions& options)
      : tensors_(std::move(tensors)), metadata_(metadata), path_(path), options_(options) {}

  Result<SafetensorsReport> run() {
    TRY(prepare());
    NewSet set(options_, report_.tensor_bytes);
    for (std::size_t i = 0; i < layouts_.size(); ++i)
      TRY(set.add(path_of_file(path_, i, layouts_.size()), layouts_[i].bytes));
    if (report_.has_index)
      TRY(set.add(std::filesystem::path(path_) += ".index.json", index_.size()));
    for (std::size_t i = 0; i < layouts_.size(); ++i)
      TRY(about_file(write(set.files()[i], layouts_[i]), set.files()[i].path()));
    if (report_.has_index) {
      TRY(set.files().back().put_head(std::as_bytes(std::span(index_))));
      TRY(set.files().back().sync());
    }
    TRY(set.commit());
    for (const ContentFile& file : set.files()) {
      report_.files.push_back({file.path(), file.bytes()});
      report_.bytes += file.bytes();
    }
    return std::move(report_);
  }

 private:
  static Result<void> about_file(Result<void> result, const std::filesystem::path& path) {
    if (result) return result;
    return weightmap::about_file(std::move(result.error()), path);
  }

  // Everything up to the first file.
  Result<void> prepare() {
    if (std::endian::native != std::endian::little)
      return failure(ErrorCode::unsupported,
                     "safetensors files have little-endian elements, and this machine is "
                     "big-endian");
    if (options_.max_file_bytes != 0 && path_.extension() != extension)
      return failure(ErrorCode::invalid_argument,
                     "the path of what may be a set of files must end in .safetensors");
    TRY(check_tensors(tensors_));
    TRY(settle_shared(tensors_, options_.shared, report_.dropped));
    for (const auto& [name, kept] : report_.dropped) metadata_.emplace_back(name, kept);
    TRY(check_metadata(metadata_));
    const Files files = divide(tensors_, options_.max_file_bytes);
    for (const std::vector<std::size_t>& members : files) {
      TRY_ASSIGN(SafetensorsLayout layout, lay_out_safetensors(tensors_, members, metadata_));
      report_.tensor_bytes += layout.bytes - layout.header.size();
      layouts_.push_back(std::move(layout));
    }
    report_.has_index = files.size() > 1;
    if (!report_.has_index) return {};
    if (!bytes::is_utf8(path_.filename().native()))
      return failure(ErrorCode::invalid_argument,
                     "the name of the file is not UTF-8, which the index of a set has to be");
    index_ = index_text(tensors_, files, path_, report_.tensor_bytes);
    return {};
  }

  Result<void> write(ContentFile& file, const SafetensorsLayout& layout) const {
    TRY(file.put_head(std::as_bytes(std::span(layout.header))));
    for (const std::size_t member : layout.tensors)
      TRY(file.put(tensors_[member].content, "the tensor " + bytes::quote(tensors_[member].name)));
    return file.sync();
  }

  std::vector<SafetensorsTensor> tensors_;
  SafetensorsMetadata metadata_;
  const std::filesystem::path& path_;
  const SafetensorsOptions& options_;
  std::vector<SafetensorsLayout> layouts_;
  std::string index_;
  SafetensorsReport report_;
};

}  // namespace

Result<SafetensorsTensor> SafetensorsTensor::of(std::string name, const TensorView& view) {
  Result<void> readable = view.check_gather(view.nbytes());
  if (readable) readable = check_repeats(view);
  if (!readable) {
    readable.error().message.insert(0, "the tensor " + bytes::quote(name) + ": ");
    return tl::unexpected<Error>(std::move(readable.error()));
  }
  SafetensorsTensor made{.name = std::move(name),
                         .dtype = view.dtype(),
                         .shape = {view.shape().begin(), view.shape().end()},
                         .content = content_of(view),
                         .origin = view.stored_bytes()};
  if (!view.is_contiguous()) made.strides = {view.strides().begin(), view.strides().end()};
  return made;
}

Result<SafetensorsReport> write_safetensors(std::vector<SafetensorsTensor> tensors,
                                            const SafetensorsMetadata& metadata,
                                            const std::filesystem::path& path,
                                            const SafetensorsOptions& options) {
  Result<SafetensorsReport> report =
      SafetensorsWriting(std::move(tensors), metadata, path, options).run();
  if (!report) return about_file(std::move(report.error()), path);
  return report;
}

}  // namespace weightmap
