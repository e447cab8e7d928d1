#include "tools/shards/shard.hpp"

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

ByteOrder byte_order_of(const FlatCheckpoint& flat) {
  return flat.checkpoint().info().byteorder == "big" ? ByteOrder::big : ByteOrder::little;
}

}  // namespace

Result<void> Shard::add(const FlatCheckpoint& from, const NamedTensor& tensor) {
  if (items_.empty()) options_.byte_order = byte_order_of(from);
  if (options_.byte_order != byte_order_of(from))
    return tl::unexpected<Error>(
        Error{.code = ErrorCode::unsupported,
              .message = "its elements have another byte order than those of " +
                         printable(items_.front().from->path().native()),
              .file = printable(from.path().native())});
  items_.push_back({&from, tensor});
  return {};
}

Value Shard::add_to(CheckpointWriter& writer, const Item& item, std::size_t storage) const {
  const NamedTensor& tensor = item.tensor;
  const Value value = writer.tensor(storage, {.dtype = tensor.view.dtype(),
                                              .storage_offset = tensor.storage_offset,
                                              .sizes = tensor.view.shape(),
                                              .strides = tensor.view.strides(),
                                              .requires_grad = tensor.requires_grad});
  return tensor.is_parameter ? writer.parameter(value, tensor.requires_grad) : value;
}

Result<std::uint64_t> Shard::write(const std::filesystem::path& path, Progress progress) const {
  CheckpointWriterOptions options = options_;
  options.progress = std::move(progress);
  CheckpointWriter writer(options);
  std::map<std::pair<const FlatCheckpoint*, std::size_t>, std::size_t> storages;
  std::vector<Value> values;
  for (const Item& item : items_) {
    const std::pair key(item.from, item.tensor.storage_index);
    auto known = storages.find(key);
    if (known == storages.end()) {
      Result<RecordContent> content =
          item.from->archive().content(NamedStorage{.key = item.tensor.storage}.record());
      if (!content) return tl::unexpected<Error>(content.error());
      known = storages.emplace(key, writer.add_storage(std::move(*content), item.tensor.location))
                  .first;
    }
    values.push_back(writer.values().string(item.tensor.name));
    values.push_back(add_to(writer, item, known->second));
  }
  const Result<WritePlan> written = std::move(writer).write(writer.values().dict(values), path);
  if (!written) return tl::unexpected<Error>(written.error());
  return written->archive_bytes;
}

}  // namespace weightmap::cli
