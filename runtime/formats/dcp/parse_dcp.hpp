// Parses the format of torch.distributed.checkpoint: a folder with .metadata, or one for each rank,
// and .distcp files.
//
// A tensor of one chunk is an ordinary one. The chunks of other tensors are listed as "name[0:3,
// 0:6]", and the whole is a ComposedTensor of the form chunked; see weightmap/chunks.hpp.
#pragma once

#include <cstdint>
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

// When items are read and compared with the metadata.
enum class Proof : std::uint8_t { at_open, at_first_use };

// At the first use, unless the options ask for what only the items tell. They are complete.
Proof proof_of(const OpenOptions& options) noexcept;

// Takes the first tree out of `metadata`, and keeps the rest for the values and the items, which
// read `files` later; these are in the order of Metadata::files, behind all metadata files, and
// stay open, where they are. Fails if the chunks do not make up the tensors, or leave their files;
// with a proof at open as read_items() does.
Result<format::Parsed> parse(const std::shared_ptr<Metadata>& metadata,
                             std::span<const DataFile> files, Proof proof,
                             const OpenOptions& options, OpenStats& stats,
                             std::pmr::memory_resource& memory);

}  // namespace weightmap::dcp
