// Reports which parts of a checkpoint are in memory, and evicts them.
//
//   auto report = weightmap::residency(checkpoint);
//   if (!report) return tl::unexpected(report.error());
//   report->file.cached_bytes;                    // a read of these needs no disk
//   auto evicted = weightmap::evict("model.pt");  // the next read is cold
//
// All sizes are in bytes. Figures are of one moment: the system and other processes change them at
// any time. Reports are plain values; they do not refer to the Checkpoint. All functions may be
// called from any thread, also while others read tensors.
//
// The system reports cached pages only to the file's owner and to users who may write to it. For
// others every function here fails with io (os_error EPERM).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// The residency of all files of the checkpoint.
struct Residency {
  std::uint64_t file_bytes = 0;
  // Bytes of the files in the page cache, whichever process read them.
  std::uint64_t cached_bytes = 0;

  // RSS: the whole pages in this process's page table through the mappings of this Checkpoint.
  // Reading these bytes costs no page fault. For a cached file, this is what was touched so far.
  std::uint64_t resident_bytes = 0;
  // The part of these that is this process's private memory, copied by writing. The rest is the
  // file's pages, shared with the page cache.
  std::uint64_t anonymous_bytes = 0;
  std::uint64_t huge_mapped_bytes = 0;  // mapped 2 MiB at a time; included in resident_bytes
  // PSS: the resident pages, each divided by the number of processes that have it mapped.
  std::uint64_t pss_bytes = 0;
  // The part of pss_bytes that is anonymous; the rest are pages of the file. nullopt if the system
  // cannot tell, because processes that were forked since share some of the copies.
  std::optional<std::uint64_t> pss_anonymous_bytes;

  // Page faults since the Checkpoint was opened. The system counts them per process, not per
  // mapping, so they include all threads and all memory. A forked child counts its own.
  std::uint64_t minor_faults_since_open = 0;  // found their page in memory
  std::uint64_t major_faults_since_open = 0;  // waited for the disk

  // Up to eight fully cached ranges of the size of a huge page are mapped for a moment, to find out
  // how the cache holds them: sampled_bytes is their size, and sampled_huge_bytes the part that is
  // held in huge pages.
  std::uint64_t sampled_bytes = 0;
  std::uint64_t sampled_huge_bytes = 0;
  // True if the cache holds most of the sample in small pages, which cost a page fault each,
  // although this kernel and file system could use huge pages; repair() fixes that. nullopt if it
  // is unknown: no range is fully cached, or the system is not known to use huge pages for files
  // (Linux does for ext4 since 6.16 and for XFS since 5.18) and none was seen.
  std::optional<bool> is_fragmented;
};

// A range of a file. The counts are bytes of the range, not of the whole pages at its ends.
struct RangeResidency {
  std::size_t source = 0;          // the file: position among Checkpoint::source()
  std::uint64_t file_offset = 0;   // of the first byte
  std::uint64_t extent_bytes = 0;  // length of the range
  std::uint64_t cached_bytes = 0;  // of the range, in the page cache

  // As for the whole file. Bytes in two mappings of this Checkpoint, its own and that of
  // copy_on_write(), count twice. nullopt if the system does not report them for a part of a
  // mapping: huge_mapped_bytes before Linux 6.7, and all three in some sandboxes.
  std::optional<std::uint64_t> resident_bytes;
  std::optional<std::uint64_t> anonymous_bytes;
  std::optional<std::uint64_t> huge_mapped_bytes;
};

// The range from the first to the last element that the strides reach.
struct TensorResidency : RangeResidency {
  std::size_t index = 0;  // position in Checkpoint::tensors()
};

struct StorageResidency : RangeResidency {
  std::string key;  // "0" for data/0
};

struct ResidencyReport {
  Residency file;
  std::vector<TensorResidency> tensors;    // in the order of Checkpoint::tensors(), one each
  std::vector<StorageResidency> storages;  // in the order of Checkpoint::storage(), one each
};

// Returns the residency of the checkpoint without reading or mapping any tensor. This costs up to
// 0.1 us per page, and little if the cache holds the file in huge pages or not at all. Cached and
// mapped pages are queried one after the other. Fails with io if the system does not report them.
WEIGHTMAP_API Result<ResidencyReport> residency(const Checkpoint& checkpoint);

// Returns only Residency::anonymous_bytes, which costs less and works for any user. Fails with io
// if the system does not report it.
WEIGHTMAP_API Result<std::uint64_t> anonymous_bytes(const Checkpoint& checkpoint);

// Returns true if a file system drops what is cached of a file of this checkpoint whenever anybody
// opens the file: FUSE without kernel_cache, or with direct_io. Then nothing that is brought into
// memory is there for the next one who opens the file, whether it is mapped, locked or neither.
// Opens such a file once more to find out. False as well if the system does not tell.
WEIGHTMAP_API bool drops_pages_at_open(const Checkpoint& checkpoint);

struct EvictReport {
  std::uint64_t file_bytes = 0;
  std::uint64_t cached_before = 0;
  std::uint64_t cached_after = 0;
  // The reason why the rest stays. If neither field explains it, a process has the file mapped or
  // locked, such as a Checkpoint that has been read from, in this process or another.
  std::uint64_t unwritten_bytes = 0;  // dirty pages; call sync(1) and retry
  bool lives_in_memory = false;       // the file is on tmpfs or the like, and has no other storage
};

// Asks the system to drop any regular file from the page cache; for an index of shards or a folder,
// all files of its checkpoint, whose sums the report has. Remaining pages are not an error: see
// `cached_after`. Fails with io if the file cannot be opened or the system does not report cached
// pages, with not_a_checkpoint if the file is empty or not a regular file. `progress` is called by
// this thread with the offset that the request has reached.
WEIGHTMAP_API Result<EvictReport> evict(const std::filesystem::path& path,
                                        const Progress& progress = {});

struct RepairReport {
  EvictReport evicted;
  std::uint64_t read_bytes = 0;         // bytes that were read again
  std::uint64_t huge_mapped_bytes = 0;  // the part of read_bytes that is in huge pages now
  std::uint64_t cached_bytes = 0;       // of the whole file, afterwards
};

// Evicts a file and reads every range of the size of a huge page again of which a part was cached,
// in huge pages if the system supports them. The system may read ahead as much behind each run of
// such ranges. Mapped pages cannot be repaired. `progress` is called by this thread with the bytes
// read; cancelling leaves the rest evicted. Fails as evict() does, with unsupported before Linux
// 5.14, and with io if the disk fails or the file is truncated meanwhile.
WEIGHTMAP_API Result<RepairReport> repair(const std::filesystem::path& path,
                                          const Progress& progress = {});

}  // namespace weightmap
