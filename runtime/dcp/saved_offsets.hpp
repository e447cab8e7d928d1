// What torch's HuggingFaceStorageWriter writes into the metadata of each safetensors shard: where
// the part of a tensor that the shard has begins in the whole.
//
//   "DCP_SHARDING_INFO": "{\"lm_head.weight\": {\"saved_offsets\": [512, 0]}, ...}"
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string_view>

#include "runtime/format/format.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::dcp {

// A shard, and how its positions and those of all files go together.
struct SavedShard {
  const format::Parsed* parsed;
  std::string_view shown_name;  // for errors
  std::uint64_t base;           // in the space of all files
  std::uint32_t source;         // the number of the file
};

// Whether the shard says where its parts begin.
bool has_saved_offsets(const format::Parsed& shard);

// The catalog of all of them, and what is made of several parts. Precondition: each of them has
// offsets. A tensor that is not named there begins at the beginning. Fails with corrupt, naming the
// file or the tensor, where offsets are not as torch writes them, or parts are not the whole.
Result<void> join_shards(std::span<const SavedShard> shards, const OpenOptions& options,
                         std::pmr::memory_resource& memory, format::Parsed& whole);

}  // namespace weightmap::dcp
