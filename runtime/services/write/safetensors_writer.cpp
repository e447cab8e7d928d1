#include "weightmap/safetensors_writer.hpp"

#include <bit>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/element_walk.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/write/file_set.hpp"
#include "runtime/services/write/safetensors_layout.hpp"
#include "runtime/services/write/shards.hpp"
#include "runtime/services/write/shared_elements.hpp"
#include "runtime/services/write/view_content.hpp"

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
  std::vector<ShardItem> items;
  for (const SafetensorsTensor& tensor : tensors)
    items.push_back({tensor.content.size(), items.size()});
  return divide_into_shards(items, max_file_bytes);
}

std::string index_text(const std::vector<SafetensorsTensor>& tensors, const Files& files,
                       const std::filesystem::path& path, std::uint64_t tensor_bytes) {
  std::vector<std::pair<std::string_view, std::size_t>> file_of;
  for (std::size_t i = 0; i < files.size(); ++i)
    for (const std::size_t tensor : files[i]) file_of.emplace_back(tensors[tensor].name, i);
  return shard_index_text(std::move(file_of), files.size(), path, tensor_bytes);
}

class SafetensorsWriting {
 public:
  SafetensorsWriting(std::vector<SafetensorsTensor> tensors, const SafetensorsMetadata& metadata,
                     const std::filesystem::path& path, const SafetensorsOptions& options)
      : tensors_(std::move(tensors)), metadata_(metadata), path_(path), options_(options) {}

  Result<SafetensorsReport> run() {
    TRY(prepare());
    FileSet set(options_.file, options_.progress, report_.tensor_bytes);
    for (std::size_t i = 0; i < layouts_.size(); ++i)
      TRY(set.add(report_.has_index ? shard_path(path_, i, layouts_.size()) : path_,
                  layouts_[i].bytes));
    if (report_.has_index) TRY(set.add(index_path(path_), index_.size()));
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

  // Does all work up to the first file.
  Result<void> prepare() {
    if (std::endian::native != std::endian::little)
      return failure(ErrorCode::unsupported,
                     "safetensors files have little-endian elements, and this machine is "
                     "big-endian");
    const bool may_be_set = options_.max_file_bytes != 0 || options_.always_index;
    if (may_be_set && path_.extension() != extension)
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
    report_.has_index = options_.always_index || files.size() > 1;
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
