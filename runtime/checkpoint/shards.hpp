// Parses the files of a checkpoint separately, several at a time, and merges their catalogs.
#pragma once

#include <cstddef>

#include "runtime/checkpoint/sources.hpp"
#include "runtime/formats/format/format.hpp"
#include "runtime/formats/sets/shard_index.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Parses all files of `sources` from number `first` on. With an index, which has as many files in
// the same order, the tensors are exactly those that it names, otherwise all. Errors name the file.
// Fails with corrupt if the index names a tensor that its file does not have, or if two files have
// one; with corrupt for a split whose files do not match its description; with unsupported for
// features of single files: compressed storages, reserved ones.
Result<format::Parsed> parse_shards(const Sources& sources, std::size_t first,
                                    const sets::ShardIndex* index, const OpenOptions& options,
                                    OpenStats& stats, std::pmr::memory_resource& memory);

}  // namespace weightmap
