// The metadata that torch's HuggingFaceStorageWriter writes into each safetensors shard: the place
// of the shard's part in the whole tensor.
//
//   "DCP_SHARDING_INFO": "{\"lm_head.weight\": {\"saved_offsets\": [512, 0]}, ...}"
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string_view>

#include "runtime/formats/format/format.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::dcp {

// A shard, and its place in the address space of all files.
struct SavedShard {
  const format::Parsed* parsed;
  std::string_view shown_name;  // for errors
  std::uint64_t base;           // in that address space
  std::uint32_t source;         // the number of the file
};

// True if the shard states the places of its parts.
bool has_saved_offsets(const format::Parsed& shard);

// Fails with invalid_argument, naming the tensor, if a part of a file that is not joined with
// others begins elsewhere than the whole tensor: then its shape is that of the part.
Result<void> check_has_no_parts(const format::Parsed& file, const OpenOptions& options,
                                std::pmr::memory_resource& memory);

// Builds the catalog of all shards, and the tensors of several parts. Precondition: each shard has
// offsets. A tensor without an entry there begins at offset 0. Fails with corrupt, naming the file
// or the tensor, for offsets in another form than torch's, or an incomplete whole.
Result<void> join_shards(std::span<const SavedShard> shards, const OpenOptions& options,
                         std::pmr::memory_resource& memory, format::Parsed& whole);

}  // namespace weightmap::dcp
