// Reads the items of .distcp files with tensors: each is an archive of torch.save with one tensor.
// Its head and its tail are read and proven like any archive's, since only they have the place of
// the bytes and the strides: .metadata has the shape only, and transposed tensors are stored as
// they were.
//
// Items lie back to back, so one read covers the tail of one and the head of the next.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/formats/dcp/assemble.hpp"
#include "runtime/formats/dcp/metadata.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::dcp {

// A chunk to be read, and the result.
struct ItemRead {
  const Tensor* tensor;
  const Chunk* chunk;
  PlacedChunk placed;
};

// One of Metadata::files.
struct DataFile {
  const bytes::ByteSource* file;
  std::string_view shown_name;  // for errors
  std::uint64_t base;           // in the address space of all files
  std::uint32_t number;         // among the files of the checkpoint
};

// Reads the items in a few threads. Sorts them by their places. Fails with corrupt for an item that
// contradicts the metadata. Errors name the tensor, the chunk and the file.
Result<void> read_items(std::span<ItemRead> items, std::span<const DataFile> files,
                        const OpenOptions& options, OpenStats& stats);

}  // namespace weightmap::dcp
