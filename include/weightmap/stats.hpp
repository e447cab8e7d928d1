// Counters of an open: OpenStats. (statistics.hpp is about the elements of a tensor.)
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "weightmap/export.hpp"

namespace weightmap {

// The method by which the payload offset of a storage was found; see docs/offsets.md.
enum class OffsetStrategy : std::uint8_t {
  none,        // the file has no storages
  calculated,  // by the padding rule, proven by the next record; begins where the previous one
               // ended
  directory,   // the same, but other data lies between it and the previous storage
  headers,     // by the record's own local header
};
// Returns "none", "calculated", "directory" or "headers".
WEIGHTMAP_API std::string_view to_string(OffsetStrategy strategy) noexcept;

// All counts of reads and headers belong to this open only.
struct OpenStats {
  // The weakest strategy that any storage needed.
  OffsetStrategy strategy = OffsetStrategy::none;
  std::uint64_t storages_calculated = 0;
  std::uint64_t storages_by_directory = 0;
  std::uint64_t storages_by_header = 0;

  // Local file headers read to find a payload; reads that only verify are counted below.
  std::uint64_t local_headers_read = 0;
  std::uint64_t local_headers_verified = 0;
  // References to a storage whose offset was already in the cache (tied weights, views).
  std::uint64_t cache_hits = 0;

  // pread calls for metadata and their bytes, without those that only verify.
  std::uint64_t reads = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t verify_reads = 0;
  std::uint64_t verify_bytes_read = 0;

  // Storages that were copied into memory, deflated or spelled as text, and their size there.
  std::uint64_t storages_copied = 0;
  std::uint64_t bytes_copied = 0;

  // Wall-clock time of the whole open and of its stages.
  std::chrono::nanoseconds total{};
  std::chrono::nanoseconds directory{};  // find and parse the central directory
  std::chrono::nanoseconds pickle{};     // read and run data.pkl
  std::chrono::nanoseconds catalog{};    // tensors, offsets, catalog and name index
  std::chrono::nanoseconds copying{};    // inflate storages
  std::chrono::nanoseconds mapping{};    // mmap and madvise
};

}  // namespace weightmap
