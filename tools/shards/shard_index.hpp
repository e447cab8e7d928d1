// Which file of a set has which tensor: the file *.index.json of transformers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "weightmap/result.hpp"

namespace weightmap::cli {

struct ShardIndex {
  std::uint64_t total_size = 0;                // bytes of all storages
  std::map<std::string, std::string> file_of;  // by the tensor's name; names beside the index

  bool operator==(const ShardIndex&) const = default;
};

// Fails with invalid_argument for what is no such JSON, a name that it has twice, or a file that
// does not lie beside the index; with io if it cannot be read.
Result<ShardIndex> read_shard_index(const std::filesystem::path& path);

// As transformers writes it. The file appears once it is whole and on the disk.
Result<void> write_shard_index(const ShardIndex& index, const std::filesystem::path& path);

}  // namespace weightmap::cli
