// How tensors are divided among the files of a set, what these are called, and their index: as
// transformers does it.
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
  std::size_t group;    // items of one group stay together
};

// The items of each shard, in their order: a new shard where one would become larger than
// `most_bytes`, and a shard of its own for a group that is larger than that. Shards are numbered as
// they become full. 0: one shard.
std::vector<std::vector<std::size_t>> divide_into_shards(std::span<const ShardItem> items,
                                                         std::uint64_t most_bytes);

// "model-00001-of-00003.safetensors" of "model.safetensors".
std::filesystem::path shard_path(const std::filesystem::path& path, std::size_t index,
                                 std::size_t count);
// "model.safetensors.index.json".
std::filesystem::path index_path(const std::filesystem::path& path);

// The index of these tensors, each with the number of its shard.
std::string shard_index_text(std::vector<std::pair<std::string_view, std::size_t>> shard_of,
                             std::size_t count, const std::filesystem::path& path,
                             std::uint64_t tensor_bytes);

}  // namespace weightmap
