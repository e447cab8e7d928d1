// A checkpoint format: a row of a table (checkpoint/formats.cpp) with a function that reads the
// metadata of its files.
//
// All files of a checkpoint share one linear address space, each from its base on; the base of a
// single file is 0. A catalog uses positions in it only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/catalog/catalog.hpp"
#include "runtime/base/value/tree.hpp"
#include "runtime/base/zip/directory.hpp"
#include "runtime/formats/format/compressed_storages.hpp"
#include "runtime/formats/format/tensor_nodes.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::format {

// One file. Its metadata is read into private memory through `cache`.
struct Input {
  Input(const bytes::ByteSource& from, std::uint64_t at, std::uint64_t behind,
        std::pmr::memory_resource& memory)
      : file(&from), base(at), copies_base(behind), cache(std::in_place, from, memory) {}
  // Frees the memory of the reads, and counts them.
  void release(OpenStats& stats) {
    stats.reads += cache->reads();
    stats.bytes_read += cache->bytes_read();
    cache.reset();
  }

  const bytes::ByteSource* file;
  std::uint64_t base;
  std::uint64_t copies_base;  // behind all files; CompressedStorage has its bytes from here on
  std::optional<bytes::ReadCache> cache;
  // The size of the first read of a file that begins with its metadata; that of most is shorter.
  std::uint64_t first_bytes = bytes::first_read;
  std::optional<zip::Directory> directory;  // of an archive, if it was read to tell the format
};

// For a file that states that it is one of several of a checkpoint.
struct Split {
  std::uint32_t number;   // below count
  std::uint32_t count;    // of files, at least 2
  std::uint64_t tensors;  // in all of them
};

// The values of a checkpoint whose metadata is not their tree.
struct Values {
  std::unique_ptr<value::Tree> tree;
  TensorNodes nodes{*std::pmr::new_delete_resource()};  // of `tree`
  std::vector<std::string> left_out;                    // names of what cannot be in it
};

// An opened file, in the order of the checkpoint's.
struct ValueFile {
  const bytes::ByteSource* file;
  std::string_view shown_name;
};

// Values that lie in the files, away from the metadata, and are read when they are asked for.
struct LateValues {
  std::vector<std::string> names;
  std::function<Result<Values>(std::span<const ValueFile> files, const catalog::Catalog& catalog,
                               const OpenOptions& options)>
      read;
};

// Places of tensors that lie in the files, away from the metadata, and are read and proven when
// they are asked for. The files that were parsed must stay open, where they are. Any thread.
struct LatePlaces {
  // The catalog of one tensor of Parsed::catalog alone, with its place.
  std::function<Result<catalog::Catalog>(std::size_t index)> read;
  // That of all, in the same order.
  std::function<Result<catalog::Catalog>()> read_all;
};

// The metadata of a checkpoint: its value tree and its catalog.
struct Parsed {
  explicit Parsed(std::pmr::memory_resource& memory) : nodes(memory) {}

  std::unique_ptr<std::pmr::memory_resource> tree_memory;  // set if `tree` has memory of its own
  std::unique_ptr<value::Tree> tree;
  catalog::Catalog catalog;
  TensorNodes nodes;                          // of `tree`
  std::vector<CompressedStorage> compressed;  // by position
  std::vector<ComposedTensor> composed;
  // The chunked tensors by name: positions in `composed`, which must not change any more.
  std::unordered_map<std::string_view, std::uint32_t> chunked;
  std::optional<Split> split;
  std::optional<LateValues> late;         // in which case `tree` is not what users ask for
  std::optional<LatePlaces> late_places;  // in which case those in `catalog` are none
  // The parser fills in: format, version, format_version, byteorder, byteorder_assumed,
  // storage_alignment, pickle_bytes, names_torch_safe_only.
  CheckpointInfo facts;
};

}  // namespace weightmap::format
