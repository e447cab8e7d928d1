// The .metadata of a folder of torch.distributed.checkpoint: the tensors, their chunks, and the
// place of each chunk in a file.
//
// It is a pickle of dataclasses (torch/distributed/checkpoint/metadata.py), which are read by the
// names of their fields, whatever the names of their classes: older torch and Megatron have others.
// torch itself unpickles it and so runs its content; here nothing of it is run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/value/tree.hpp"
#include "runtime/formats/format/format.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/value.hpp"

namespace weightmap::dcp {

// An item of a .distcp file: an archive of torch.save with one tensor or any object.
struct Item {
  std::uint32_t file;  // index into Metadata::files
  std::uint64_t offset;
  std::uint64_t length;
};

// A box of a tensor. The numbers lie in Metadata::numbers.
struct Chunk {
  std::span<const std::int64_t> offsets;
  std::span<const std::int64_t> sizes;
  Item item;
};

struct Tensor {
  std::string_view name;      // points into one of the trees
  std::optional<Value> path;  // a tuple of keys
  DType dtype;
  bool requires_grad;
  std::span<const std::int64_t> sizes;  // as a chunk's
  std::vector<Chunk> chunks;            // without duplicate boxes
  std::uint32_t rank;                   // among all names of the metadata, in its order
};

// Anything that is not a tensor, which torch pickles as an item of its own.
struct Object {
  std::string_view name;      // as in Tensor
  std::optional<Value> path;  // likewise
  std::optional<Item> item;   // nullopt: it is in none of the files
  std::uint32_t rank;         // as in Tensor
  std::string missing_file;   // the name of the file that it is in, if that is not there
};

struct Metadata {
  std::vector<std::unique_ptr<value::Tree>> trees;  // one for each file that was read
  std::unique_ptr<std::pmr::monotonic_buffer_resource> numbers;
  std::vector<std::string> files;  // beside the metadata or below; sorted
  std::vector<Tensor> tensors;
  std::vector<Object> objects;
  // Names of tensors that are compressed or not strided, and of objects that are compressed.
  std::vector<std::string> unsupported;
  std::uint64_t pickle_bytes = 0;
  bool names_torch_safe_only = true;
};

// Adds the names of torch's own classes in its metadata, which it unpickles, to those that are
// safe.
OpenOptions with_own_globals(OpenOptions options);

// `files` is .metadata alone, or the __0.metadata, __1.metadata ... of all ranks, each with its own
// chunks. Reads each file whole. Fails with corrupt if its form differs from torch's, or a file
// does not lie beside the metadata or below; with unsafe_pickle and limit_exceeded as for any
// pickle. Errors name the file by `names`. A file that has no tensors and is not there by
// `is_there` is left out of Metadata::files.
Result<Metadata> read_metadata(std::span<format::Input> files,
                               std::span<const std::string_view> names, const OpenOptions& options,
                               std::pmr::memory_resource& memory,
                               const std::function<bool(const std::string&)>& is_there = {});

}  // namespace weightmap::dcp
