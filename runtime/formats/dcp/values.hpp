// The values of a folder of torch.distributed.checkpoint: the nested dict that torch's
// dcp_to_torch_save() writes, with its tensors as calls that torch.save would have written.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/catalog/catalog.hpp"
#include "runtime/formats/dcp/metadata.hpp"
#include "runtime/formats/dcp/read_items.hpp"
#include "runtime/formats/format/format.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::dcp {

// The pieces of a tensor in the catalog.
struct PiecesOf {
  std::uint32_t first;
  std::uint32_t count;
};

// Reads the items of all objects. `pieces` are those of Metadata::tensors. The key of a tensor's
// storage is its name; one in several pieces is a storage of its elements without gaps. The result
// borrows from the metadata. Fails as read_objects() does, and for a path
// that leads through another value, or is deeper or longer than the limits.
Result<format::Values> read_values(const Metadata& metadata, std::span<const PiecesOf> pieces,
                                   std::span<const DataFile> files, const catalog::Catalog& catalog,
                                   const OpenOptions& options);

}  // namespace weightmap::dcp
