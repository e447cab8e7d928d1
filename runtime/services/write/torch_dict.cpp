#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/row_major.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/archive/own_records.hpp"
#include "runtime/services/write/contents.hpp"
#include "runtime/services/write/conversion.hpp"
#include "runtime/services/write/file_set.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap {
namespace {

using Dims = std::vector<std::int64_t>;

// Parts of a storage begin at multiples of this, so that tensors of every type stay aligned.
constexpr std::uint64_t widest_element = 16;

// The part of a storage that its tensors use.
struct Part {
  std::uint64_t first = ~std::uint64_t{0};  // in bytes
  std::uint64_t end = 0;
  DType dtype = DType::uint8;
  bool has_several_types = false;

  void add(std::uint64_t at, const TensorView& view) {
    has_several_types |= end != 0 && dtype != view.dtype();
    dtype = view.dtype();
    first = std::min(first, at / widest_element * widest_element);
    end = std::max(end, at + view.stored_bytes().size());
  }
};

struct DictTensor {
  std::string_view name;
  DType dtype;
  std::size_t storage;      // index among the new storages
  std::int64_t offset = 0;  // in that storage, in elements
  Dims sizes;
  Dims strides;
  bool requires_grad = false;
  bool is_parameter = false;
};

struct NewStorage {
  RecordContent content;
  std::string_view location;
};

std::uint64_t byte_offset(const NamedTensor& tensor) noexcept {
  return static_cast<std::uint64_t>(tensor.storage_offset) * element_size(tensor.view.dtype());
}

// The tensors of a dict and the storages that they need.
class TorchDict {
 public:
  Result<void> add_all(const std::vector<SourceTensor>& tensors) {
    for (const SourceTensor& tensor : tensors) TRY(collect(tensor));
    for (const SourceTensor& tensor : tensors) TRY(add(tensor));
    return {};
  }

  const std::vector<DictTensor>& tensors() const noexcept { return tensors_; }
  const std::vector<NewStorage>& storages() const noexcept { return storages_; }

 private:
  using Key = std::pair<const Checkpoint*, std::size_t>;  // of a storage

  static bool has_elements(const SourceTensor& tensor, const TensorView& view) {
    return !tensor.is_in_pieces() && !view.stored_bytes().empty();
  }

  // Checks that a dict of tensors can hold the tensor, and records the part of its storage.
  Result<void> collect(const SourceTensor& tensor) {
    const NamedTensor piece = tensor.first_piece();
    const std::string type(to_string(tensor.whole.dtype));
    if (is_blocked(tensor.whole.dtype) || is_opaque(tensor.whole.dtype))
      return tl::unexpected<Error>(
          piece.about({ErrorCode::unsupported, "is of " + type + ", which torch does not have"}));
    if (type.starts_with('q'))
      return tl::unexpected<Error>(
          piece.about({ErrorCode::unsupported,
                       "is of " + type + ", whose scales are not in a dict of tensors"}));
    const TensorView& view = piece.view;
    if (view.is_conjugate() || view.is_negative()) {
      Result<void> refused = view.check_gather(view.nbytes());
      if (!refused) return tl::unexpected<Error>(piece.about(std::move(refused).error()));
    }
    if (has_elements(tensor, view))
      parts_[{tensor.checkpoint, piece.storage_index}].add(byte_offset(piece), view);
    return {};
  }

  Result<void> add(const SourceTensor& tensor) {
    const NamedTensor piece = tensor.first_piece();
    DictTensor made{.name = tensor.name,
                    .dtype = tensor.whole.dtype,
                    .storage = storages_.size(),
                    .sizes = tensor.whole.sizes,
                    .strides = Dims(tensor.whole.sizes.size()),
                    .requires_grad = piece.requires_grad,
                    .is_parameter = piece.is_parameter};
    if (!has_elements(tensor, piece.view)) {
      TRY_ASSIGN(RecordContent content, content_of(*tensor.checkpoint, tensor.name));
      storages_.push_back({std::move(content), piece.location});
      static_cast<void>(bytes::row_major_strides(made.sizes, made.strides));
      tensors_.push_back(std::move(made));
      return {};
    }
    made.strides.assign(piece.view.strides().begin(), piece.view.strides().end());
    TRY_ASSIGN(made.storage, storage_of(tensor, piece));
    const Part& part = parts_.at({tensor.checkpoint, piece.storage_index});
    made.offset =
        static_cast<std::int64_t>((byte_offset(piece) - part.first) / element_size(made.dtype));
    tensors_.push_back(std::move(made));
    return {};
  }

  Result<std::size_t> storage_of(const SourceTensor& tensor, const NamedTensor& piece) {
    const Key key{tensor.checkpoint, piece.storage_index};
    const auto known = numbers_.find(key);
    if (known != numbers_.end()) return known->second;
    const Part& part = parts_.at(key);
    if (piece.view.is_foreign_byte_order()) {
      TRY_ASSIGN(RecordContent content, swapped(piece, part));
      storages_.push_back({std::move(content), piece.location});
    } else {
      storages_.push_back({stored_content(*tensor.checkpoint,
                                          Backing(*tensor.checkpoint).storage(piece.storage_index),
                                          part.first, part.end - part.first),
                           piece.location});
    }
    numbers_.emplace(key, storages_.size() - 1);
    return storages_.size() - 1;
  }

  // Returns all elements of the part in this machine's byte order.
  Result<RecordContent> swapped(const NamedTensor& piece, const Part& part) {
    if (part.has_several_types)
      return tl::unexpected<Error>(
          piece.about({ErrorCode::unsupported,
                       "shares elements of the other byte order with a tensor of another type"}));
    const std::uint64_t count = (part.end - part.first) / element_size(part.dtype);
    const std::array<std::int64_t, 2>& dims =
        dims_.emplace_back(std::array{static_cast<std::int64_t>(count), std::int64_t{1}});
    const std::byte* const first =
        piece.view.stored_bytes().data() - (byte_offset(piece) - part.first);
    return content_of(
        TensorView(part.dtype, 1, dims.data(), first, part.end - part.first, piece.view.flags()));
  }

  std::map<Key, Part> parts_;
  std::map<Key, std::size_t> numbers_;  // of new storages
  std::vector<NewStorage> storages_;
  std::vector<DictTensor> tensors_;
  std::deque<std::array<std::int64_t, 2>> dims_;  // borrowed by contents
};

// One file with some of the tensors.
class DictFile {
 public:
  DictFile(const TorchDict& dict, const std::vector<std::size_t>& members,
           const CheckpointWriterOptions& options)
      : writer_(options) {
    std::map<std::size_t, std::size_t> numbers;  // of storages, in this file
    std::vector<Value> items;
    for (const std::size_t member : members) {
      const DictTensor& tensor = dict.tensors()[member];
      const auto [number, is_new] = numbers.try_emplace(tensor.storage);
      const NewStorage& storage = dict.storages()[tensor.storage];
      if (is_new) number->second = writer_.add_storage(storage.content, storage.location);
      items.push_back(writer_.values().string(tensor.name));
      items.push_back(value_of(tensor, number->second));
      values_.emplace(tensor.name, items.back());
    }
    root_ = writer_.ordered_dict(items);
  }

  // Writes `tree`, values of the checkpoint, in place of the dict. Both must live until then.
  void nest(const Checkpoint& checkpoint, const Value& tree) {
    writer_.write_tree(tree, [&checkpoint, values = values_](const Value& value) {
      const std::optional<NamedTensor> tensor = checkpoint.tensor(value);
      const auto name = tensor ? std::optional(tensor->name) : chunked_name(checkpoint, value);
      const auto found = name ? values.find(*name) : values.end();
      return found == values.end() ? std::nullopt : std::optional(found->second);
    });
  }

  Result<WritePlan> plan(const std::filesystem::path& path) { return writer_.plan(root_, path); }
  Result<WritePlan> write(const std::filesystem::path& path) && {
    return std::move(writer_).write(root_, path);
  }
  // The end of the file is read back and compared.
  Result<void> write(ContentFile& file) && {
    std::vector<std::byte> last;
    TRY(std::move(writer_).write(root_, [&](std::span<const std::byte> part) {
      last.assign(part.begin(), part.end());
      return file.put(RecordContent::bytes(part), "the archive");
    }));
    TRY(file.sync());
    return file.check_end(last);
  }

 private:
  Value value_of(const DictTensor& tensor, std::size_t storage) {
    const Value value = writer_.tensor(storage, {.dtype = tensor.dtype,
                                                 .storage_offset = tensor.offset,
                                                 .sizes = tensor.sizes,
                                                 .strides = tensor.strides,
                                                 .requires_grad = tensor.requires_grad});
    return tensor.is_parameter ? writer_.parameter(value, tensor.requires_grad) : value;
  }

  CheckpointWriter writer_;
  std::unordered_map<std::string_view, Value> values_;  // of the tensors
  Value root_;
};

class DictWriting {
 public:
  DictWriting(const TorchDict& dict, const ConversionTarget& target, const ConvertOptions& options,
              const Checkpoint* nested)
      : dict_(dict), target_(target), options_(options), nested_(nested) {
    report_.format = WrittenFormat::pt;
    report_.tensors = dict.tensors().size();
    report_.storages = dict.storages().size();
    report_.alignment = options.alignment.value_or(report_.alignment);
  }

  Result<ConvertReport> run() {
    const std::vector<std::vector<std::size_t>> shards = divided();
    TRY(shards.size() == 1 && !target_.has_index ? write_one(shards.front()) : write_set(shards));
    return std::move(report_);
  }

 private:
  std::vector<std::vector<std::size_t>> divided() const {
    std::vector<ShardItem> items;
    for (const DictTensor& tensor : dict_.tensors())
      items.push_back({dict_.storages()[tensor.storage].content.size(), tensor.storage});
    return divide_into_shards(items, options_.max_shard_bytes);
  }

  CheckpointWriterOptions writer_options(const std::filesystem::path& path) const {
    return {.alignment = report_.alignment,
            .crc32 = options_.crc32.value_or(true),
            .archive_name = archive_name(path, {}),
            .file = options_.file,
            .progress = {}};
  }

  Result<void> write_one(const std::vector<std::size_t>& members) {
    CheckpointWriterOptions options = writer_options(target_.path);
    options.progress = options_.progress;
    DictFile file(dict_, members, options);
    if (nested_ != nullptr) {
      TRY_ASSIGN(const Value tree, nested_->values());
      file.nest(*nested_, tree);
    }
    TRY_ASSIGN(const WritePlan written, std::move(file).write(target_.path));
    report_.files.push_back(target_.path);
    report_.new_bytes = written.archive_bytes;
    return {};
  }

  Result<void> write_set(const std::vector<std::vector<std::size_t>>& shards) {
    TRY_ASSIGN(const std::string index, index_text(shards));
    std::vector<DictFile> files;
    std::vector<std::uint64_t> sizes;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::filesystem::path path = shard_path(target_.path, i, shards.size());
      files.emplace_back(dict_, shards[i], writer_options(path));
      TRY_ASSIGN(const WritePlan plan, files.back().plan(path));
      sizes.push_back(plan.archive_bytes);
      report_.new_bytes += plan.archive_bytes;
      report_.files.push_back(path);
    }
    FileSet set(options_.file, options_.progress, report_.new_bytes);
    for (std::size_t i = 0; i < files.size(); ++i) TRY(set.add(report_.files[i], sizes[i]));
    report_.files.push_back(index_path(target_.path));
    report_.new_bytes += index.size();
    TRY(set.add(report_.files.back(), index.size()));
    for (std::size_t i = 0; i < files.size(); ++i) {
      TRY(about_file(std::move(files[i]).write(set.files()[i]), report_.files[i]));
    }
    TRY(set.files().back().put_head(std::as_bytes(std::span(index))));
    TRY(set.files().back().sync());
    return set.commit();
  }

  Result<std::string> index_text(const std::vector<std::vector<std::size_t>>& shards) const {
    std::vector<std::pair<std::string_view, std::size_t>> shard_of;
    for (std::size_t i = 0; i < shards.size(); ++i)
      for (const std::size_t member : shards[i])
        shard_of.emplace_back(dict_.tensors()[member].name, i);
    const std::string file_name = target_.path.filename().native();
    const bool is_text =
        bytes::is_utf8(file_name) &&
        std::ranges::all_of(shard_of, [](const auto& item) { return bytes::is_utf8(item.first); });
    if (!is_text)
      return failure(ErrorCode::invalid_argument,
                     "the index of a set has names of files and tensors, which must be UTF-8");
    std::uint64_t bytes = 0;
    for (const NewStorage& storage : dict_.storages()) bytes += storage.content.size();
    return shard_index_text(std::move(shard_of), shards.size(), target_.path, bytes);
  }

  const TorchDict& dict_;
  const ConversionTarget& target_;
  const ConvertOptions& options_;
  const Checkpoint* nested_;
  ConvertReport report_;
};

}  // namespace

Result<ConvertReport> write_torch_dict(const std::vector<SourceTensor>& tensors,
                                       const ConversionTarget& target,
                                       const ConvertOptions& options, const Checkpoint* nested) {
  TorchDict dict;
  TRY(dict.add_all(tensors));
  return DictWriting(dict, target, options, nested).run();
}

}  // namespace weightmap
