// Maps tensors to the files of a set: the *.index.json that transformers and others write beside
// the shards of a model.
//
//   {"metadata": {"total_size": 28966928384},
//    "weight_map": {"lm_head.weight": "model-00004-of-00004.safetensors", ...}}
//
// Its sizes are often stale, so `metadata` is ignored.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json/token_reader.hpp"
#include "runtime/base/value/tree.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::sets {

inline constexpr std::uint64_t longest_index = 100'000'000;  // bytes
inline constexpr std::size_t most_files = 65536;

struct ShardIndex {
  // Valid as long as `text` and this object.
  explicit ShardIndex(std::string_view text) : json(text) {}

  struct Item {
    std::string_view tensor;
    std::uint32_t file;      // index into `files`
    std::uint32_t position;  // of the name, in the text
  };

  json::TokenReader json;
  std::vector<std::string> files;  // beside the index, or in folders below; sorted
  std::vector<Item> items;         // in the order of the index
  std::unique_ptr<value::Tree> metadata;
  bool may_be_empty = false;  // set before it is read: without tensors it is no failure
};

// Fails with corrupt for invalid JSON, a repeated weight_map, an index without tensors, or a file
// that does not lie beside the index or below it. Errors have positions in the text. The caller
// checks for repeated tensors.
Result<void> read_shard_index(ShardIndex& index, const Limits& limits,
                              std::pmr::memory_resource& memory);

}  // namespace weightmap::sets
