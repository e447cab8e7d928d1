// The format of torch.distributed.checkpoint: a folder with .metadata, or one of each rank, and
// .distcp files.
//
// A tensor of one chunk is one as in any other checkpoint. One of several is listed as these,
// "name[0:3, 0:6]", and is a ComposedTensor of the form chunked, of which weightmap/chunks.hpp
// gives parts.
#pragma once

#include <memory_resource>
#include <span>

#include "runtime/dcp/metadata.hpp"
#include "runtime/dcp/read_items.hpp"
#include "runtime/format/format.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/stats.hpp"

namespace weightmap::dcp {

// Takes the first tree out of `metadata`. `files`: by the numbers of Metadata::files. Fails as
// read_metadata() and read_items() do, and where the chunks are not the tensors.
Result<format::Parsed> parse(Metadata& metadata, std::span<const DataFile> files,
                             const OpenOptions& options, OpenStats& stats,
                             std::pmr::memory_resource& memory);

}  // namespace weightmap::dcp
