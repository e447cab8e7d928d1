// Divides tensors among the files of a set; names and index follow transformers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weightmap {

struct ShardItem {
  std::uint64_t bytes;  // of its group
  std::size_t group;    // items of one group stay in one shard
};

// Returns the items of each shard, in order. A new shard begins where one would exceed
// `most_bytes`; a larger group has a shard of its own. Shards are numbered in the order in which
// they become full. 0 means one shard.
std::vector<std::vector<std::size_t>> divide_into_shards(std::span<const ShardItem> items,
                                                         std::uint64_t most_bytes);

// Returns "model-00001-of-00003.safetensors" for "model.safetensors".
std::filesystem::path shard_path(const std::filesystem::path& path, std::size_t index,
                                 std::size_t count);
// Returns "model.safetensors.index.json".
std::filesystem::path index_path(const std::filesystem::path& path);

// Returns the text of the index of these tensors, each with the number of its shard.
std::string shard_index_text(std::vector<std::pair<std::string_view, std::size_t>> shard_of,
                             std::size_t count, const std::filesystem::path& path,
                             std::uint64_t tensor_bytes);

}  // namespace weightmap
