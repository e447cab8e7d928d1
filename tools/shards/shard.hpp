// One file of tensors that come from others, as it is collected and written.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/shards/flat_checkpoint.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap::cli {

class Shard {
 public:
  explicit Shard(CheckpointWriterOptions options) : options_(std::move(options)) {}

  // Tensors that share a storage go on to share it. `from` must live until write(). Fails with
  // unsupported if the elements are in another byte order than those before.
  Result<void> add(const FlatCheckpoint& from, const NamedTensor& tensor);
  // A plain dict, in the order of add(). Returns the size of the file.
  Result<std::uint64_t> write(const std::filesystem::path& path, Progress progress) const;

 private:
  struct Item {
    const FlatCheckpoint* from;
    NamedTensor tensor;
  };
  Value add_to(CheckpointWriter& writer, const Item& item, std::size_t storage) const;

  CheckpointWriterOptions options_;
  std::vector<Item> items_;
};

}  // namespace weightmap::cli
