// Builds the catalog of tensors in pieces: an entry for each piece, and a ComposedTensor for each
// tensor of several pieces.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/catalog/catalog.hpp"
#include "runtime/formats/format/format.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/value.hpp"

namespace weightmap::dcp {

// A box of a tensor that is stored as a tensor of its own. Offsets and sizes are borrowed.
struct PlacedChunk {
  std::span<const std::int64_t> offsets;  // in the whole tensor
  std::span<const std::int64_t> sizes;
  std::vector<std::int64_t> strides;  // elements
  std::uint64_t storage_position;     // in the address space of all files
  std::uint64_t storage_bytes;
  std::int64_t storage_offset;  // elements
  std::uint32_t crc32;
  std::uint32_t source;   // the number of its file
  std::uint8_t flags;     // of TensorView
  std::size_t given = 0;  // its number among the pieces that were given
};

struct Whole {
  std::string_view name;
  std::optional<Value> path;  // a tuple of keys whose texts, joined by dots, are the name
  DType dtype;
  bool requires_grad;
  std::vector<std::int64_t> sizes;
  std::vector<PlacedChunk> chunks;
};

// Builds the catalog of one piece alone, with the sizes that assemble() gives it: of an empty
// tensor the first piece has those of the whole. Fails with corrupt, naming the tensor.
// Precondition: it has one piece, and no path.
Result<catalog::Catalog> place_piece(Whole& tensor, std::pmr::memory_resource& memory);

// Fills in the catalog and the composed tensors of `parsed`. Sorts the pieces of each tensor by
// their offsets, row-major, and drops empty ones. Fails with corrupt, naming the tensor, if pieces
// overlap or do not cover all elements, or if a name is repeated; with limit_exceeded if the tables
// would be out of proportion to the metadata of `pickle_bytes`.
Result<void> assemble(std::vector<Whole>& tensors, std::uint64_t pickle_bytes,
                      const OpenOptions& options, std::pmr::memory_resource& memory,
                      format::Parsed& parsed);

}  // namespace weightmap::dcp
