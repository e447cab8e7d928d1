#include "runtime/formats/torch/place_storages.hpp"

#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/formats/format/compressed_storages.hpp"

namespace weightmap::torch {
Result<PlacedStorages> place_storages(const zip::Directory& directory,
                                      std::span<const zip::StorageRequest> requests,
                                      const ArchiveRecords& records, format::Input& input,
                                      const OpenOptions& options, OpenStats& stats,
                                      std::pmr::memory_resource& memory) {
  zip::LocateOptions locate;
  locate.alignment = records.storage_alignment;
  locate.verify_headers = *options.verify >= Verify::headers;
  locate.takes_deflated = true;
  TRY_ASSIGN(
      std::pmr::vector<zip::StorageExtent> extents,
      zip::locate_storages(directory, requests, locate, *input.cache, *input.file, stats, memory));
  TRY_ASSIGN(std::vector<format::CompressedStorage> compressed,
             format::place_compressed(directory, extents, options.limits, input.copies_base));
  return PlacedStorages{std::move(extents), std::move(compressed)};
}

}  // namespace weightmap::torch
