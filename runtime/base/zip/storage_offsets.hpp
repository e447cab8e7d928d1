// Locates the bytes of each storage by torch's layout arithmetic, proven by the central directory.
//
// docs/offsets.md has the details. The directory gives the place of each record's header, the
// payload follows by the padding rule, and the next record confirms it without a read. Only the
// first storage's local header is read, for comparison. Where the rule does not explain a record,
// its own local header is read. No offset is ever guessed.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/zip/directory.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

// Returns "data/<key>", the record of a storage relative to the archive's folder. A key with a
// folder is the record's whole name: storages of TorchScript's constants and of .pt2 archives have
// such keys, and a torch.save file must not.
std::string storage_record(std::string_view key);

// One storage as the pickle describes it. Its record must be `nbytes` long, or longer by fewer than
// `element_size` bytes (a typed storage over a buffer that is not a multiple of its element).
struct StorageRequest {
  std::string_view key;  // borrowed; the record is <archive>/<storage_record(key)>
  std::uint64_t nbytes;
  std::uint8_t element_size;
  DType dtype = DType::uint8;                   // of the first reference; unused here
  std::uint32_t number = StorageNumbers::none;  // the key as a number, if it is one
};

struct StorageExtent {
  std::uint64_t payload_offset;  // absolute
  std::uint64_t nbytes;          // of the record
  std::uint32_t crc32;
  std::uint32_t record;  // index into Directory::records()
};

struct LocateOptions {
  std::uint64_t alignment = 64;  // content of .storage_alignment, or 64
  bool verify_headers = false;   // compare every offset with the record's local header
};

// Compares extents with the local headers of their records, and counts the comparisons.
Result<void> verify_extents(const Directory& directory, std::span<const StorageExtent> extents,
                            const bytes::ByteSource& source, OpenStats& stats);

// Returns the extents of `requests` in their order, which may be any; keys are unique. Adds its
// work to `stats` (strategy, storages_*, local_headers_*; reads that only verify go to
// `verify_source` instead of `windows` and count as verify_reads/verify_bytes_read). Fails with
// corrupt, naming the record, if a record is missing, has another size than the pickle states, is a
// folder, or differs from its local header. The extent of a deflated record has the inflated size
// and the offset of the compressed bytes. `memory` holds the result and must outlive it.
Result<std::pmr::vector<StorageExtent>> locate_storages(
    const Directory& directory, std::span<const StorageRequest> requests,
    const LocateOptions& options, bytes::ReadCache& cache, const bytes::ByteSource& verify_source,
    OpenStats& stats, std::pmr::memory_resource& memory);

}  // namespace weightmap::zip
