// Where the bytes of each storage are: torch's layout arithmetic, proven by the central directory.
//
// docs/offsets.md tells the whole story. In short, the directory says where each record's header
// is, and the payload follows by the padding rule; the record behind it proves that, without
// reading anything. Only the local header of the first storage is read, to be compared. Where the
// rule does not explain a record, its own local header is read. Never a guess.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bytes/read_cache.hpp"
#include "runtime/zip/directory.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/result.hpp"
#include "weightmap/stats.hpp"

namespace weightmap::zip {

// "data/<key>": the record of a storage, relative to the archive's folder. A key that names a
// folder is the record's whole name: storages of TorchScript's constants and of .pt2 archives are
// called so, and a torch.save file may have no such key.
std::string storage_record(std::string_view key);

// What the pickle says about one storage. Its record must be `nbytes` long, or longer by fewer than
// `element_size` bytes (a typed storage over a buffer that is not a multiple of its element).
struct StorageRequest {
  std::string_view key;  // borrowed; the record is <archive>/<storage_record(key)>
  std::uint64_t nbytes;
  std::uint8_t element_size;
  DType dtype = DType::uint8;                   // as first referred to; of no matter here
  std::uint32_t number = StorageNumbers::none;  // that the key is, if it is one
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
  bool takes_deflated = false;   // the caller inflates; else a deflated storage is refused
};

// Compares extents with the local headers of their records, and counts that.
Result<void> verify_extents(const Directory& directory, std::span<const StorageExtent> extents,
                            const bytes::ByteSource& source, OpenStats& stats);

// The extents of `requests`, in their order, which is any order; keys are unique. Adds what it did
// to `stats` (strategy, storages_*, local_headers_*; reads made only to verify through
// verify_reads/verify_bytes_read, which it makes on `verify_source` and not through `cache`).
// Fails with corrupt, naming the record, if a record is missing, has another size than the pickle
// says, is a folder, or differs from its local header; with unsupported if it is deflated and the
// options do not take it. The extent of a record that is deflated has the bytes it inflates to, and
// the offset of what is compressed. `memory` holds the result and must outlive it.
Result<std::pmr::vector<StorageExtent>> locate_storages(
    const Directory& directory, std::span<const StorageRequest> requests,
    const LocateOptions& options, bytes::ReadCache& cache, const bytes::ByteSource& verify_source,
    OpenStats& stats, std::pmr::memory_resource& memory);

}  // namespace weightmap::zip
