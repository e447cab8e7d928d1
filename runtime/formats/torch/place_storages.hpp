// Finds the storages of an archive's tensors: in their records or, if another program deflated the
// records, in memory.
#pragma once

#include <memory_resource>
#include <span>
#include <vector>

#include "runtime/base/zip/directory.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/formats/format/format.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

struct PlacedStorages {
  std::pmr::vector<zip::StorageExtent> extents;  // of the requests, in their order
  // The storages to be inflated; their extents have positions from Input::copies_base on.
  std::vector<format::CompressedStorage> compressed;
};

// Fails as zip::locate_storages() does; with corrupt for sizes that deflate cannot reach, with
// limit_exceeded beyond Limits::copied_bytes and copied_ratio. Allocates nothing for the inflated
// content. `memory` holds the extents and must outlive them.
Result<PlacedStorages> place_storages(const zip::Directory& directory,
                                      std::span<const zip::StorageRequest> requests,
                                      const ArchiveRecords& records, format::Input& input,
                                      const OpenOptions& options, OpenStats& stats,
                                      std::pmr::memory_resource& memory);

}  // namespace weightmap::torch
