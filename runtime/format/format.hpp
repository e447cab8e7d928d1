// What the parser of a format is given, and what it returns; checkpoint/formats.hpp has the table
// of the formats.
//
// All files of a checkpoint lie in one linear space of positions, each from a base on; the base of
// a single file is 0. A catalog speaks of positions only.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/bytes/windows.hpp"
#include "runtime/catalog/catalog.hpp"
#include "runtime/format/compressed_storages.hpp"
#include "runtime/format/tensor_nodes.hpp"
#include "runtime/value/tree.hpp"
#include "runtime/zip/directory.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/composed_tensor.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/stats.hpp"

namespace weightmap::format {

// One file, whose metadata is read privately through `windows`.
struct Input {
  Input(const bytes::Source& from, std::uint64_t at, std::uint64_t behind,
        std::pmr::memory_resource& memory)
      : file(&from), base(at), copies_base(behind), windows(std::in_place, from, memory) {}
  // Gives the memory of what was read back, and counts the reads.
  void release(OpenStats& stats) {
    stats.reads += windows->reads();
    stats.bytes_read += windows->bytes_read();
    windows.reset();
  }

  const bytes::Source* file;
  std::uint64_t base;
  std::uint64_t copies_base;  // behind all files: where CompressedStorage has its bytes
  std::optional<bytes::Windows> windows;
  std::optional<zip::Directory> directory;  // of an archive, if it was read to tell the format
};

// Of a file that says to be one of several that are a checkpoint together.
struct Split {
  std::uint32_t number;   // below count
  std::uint32_t count;    // of the files, at least 2
  std::uint64_t tensors;  // in all of them
};

// What the metadata of a checkpoint says: its value tree and its catalog.
struct Parsed {
  explicit Parsed(std::pmr::memory_resource& memory) : nodes(memory) {}

  std::unique_ptr<std::pmr::memory_resource> tree_memory;  // where `tree` has memory of its own
  std::unique_ptr<value::Tree> tree;
  catalog::Catalog catalog;
  TensorNodes nodes;                          // of `tree`
  std::vector<CompressedStorage> compressed;  // by position
  std::vector<ComposedTensor> composed;
  // Those of the form chunked, by name: positions in `composed`, which does not change any more.
  std::unordered_map<std::string_view, std::uint32_t> chunked;
  std::optional<Split> split;
  // Filled in: format, version, format_version, byteorder, byteorder_assumed, storage_alignment,
  // pickle_bytes, names_torch_safe_only.
  CheckpointInfo facts;
};

}  // namespace weightmap::format
