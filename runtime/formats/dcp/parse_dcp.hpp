// Parses the format of torch.distributed.checkpoint: a folder with .metadata, or one for each rank,
// and .distcp files.
//
// A tensor of one chunk is an ordinary one. The chunks of other tensors are listed as "name[0:3,
// 0:6]", and the whole is a ComposedTensor of the form chunked; see weightmap/chunks.hpp.
#pragma once

#include <memory>
#include <memory_resource>
#include <span>

#include "runtime/formats/dcp/metadata.hpp"
#include "runtime/formats/dcp/read_items.hpp"
#include "runtime/formats/format/format.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::dcp {

// Takes the first tree out of `metadata`, and keeps the rest for the values, which read `files`
// again; these are in the order of Metadata::files, behind all metadata files. Fails as
// read_metadata() and read_items() do, and if the chunks do not make up the tensors.
Result<format::Parsed> parse(const std::shared_ptr<Metadata>& metadata,
                             std::span<const DataFile> files, const OpenOptions& options,
                             OpenStats& stats, std::pmr::memory_resource& memory);

}  // namespace weightmap::dcp
