// Where the storages that an archive's tensors lie in are: in their records, or, of those that
// another program deflated, in memory.
#pragma once

#include <memory_resource>
#include <span>
#include <vector>

#include "runtime/format/format.hpp"
#include "runtime/torch/archive_records.hpp"
#include "runtime/zip/directory.hpp"
#include "runtime/zip/storage_offsets.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

struct PlacedStorages {
  std::pmr::vector<zip::StorageExtent> extents;  // of the requests, in their order
  // Those to be inflated, whose extents have a position from Input::copies_base on.
  std::vector<format::CompressedStorage> compressed;
};

// Fails as zip::locate_storages() does; with corrupt for what deflate cannot reach, with
// limit_exceeded beyond Limits::copied_bytes and copied_ratio. Nothing is allocated for what is to
// be inflated. `memory` holds the extents and must outlive them.
Result<PlacedStorages> place_storages(const zip::Directory& directory,
                                      std::span<const zip::StorageRequest> requests,
                                      const ArchiveRecords& records, format::Input& input,
                                      const OpenOptions& options, OpenStats& stats,
                                      std::pmr::memory_resource& memory);

}  // namespace weightmap::torch
