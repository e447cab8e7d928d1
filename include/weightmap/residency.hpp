// What of a checkpoint is in memory, and putting it out of there.
//
//   auto report = weightmap::residency(checkpoint);
//   if (!report) return fail(report.error());
//   report->file.cached_bytes;                    // a read of these needs no disk
//   weightmap::evict("model.pt");                 // the next read is a cold one
//
// All sizes are bytes, all figures those of one moment: the system and other processes change them
// at any time. Reports are plain values; they do not refer to the Checkpoint. All functions may be
// called from any thread, also while others read tensors.
//
// The system tells what is cached to the file's owner and to those who may write to it. For others
// every function here fails with io (os_error EPERM).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// The whole file.
struct Residency {
  std::uint64_t file_bytes = 0;
  // In the page cache, whoever brought it there.
  std::uint64_t cached_bytes = 0;

  // RSS: in the page table of this process, through the mappings of this Checkpoint. Reading these
  // does not even cost a page fault. Of a file that is cached, this is what has been touched so
  // far. In whole pages, the last one of the file included.
  std::uint64_t resident_bytes = 0;
  // Of these, this process's own private memory: copied by writing, or read by
  // WarmMethod::direct. The rest are the pages
  // of the file, which are shared with the page cache.
  std::uint64_t anonymous_bytes = 0;
  std::uint64_t huge_mapped_bytes = 0;  // of resident_bytes, mapped 2 MiB at a time
  // PSS: resident_bytes, each page divided by the number of processes that have it mapped.
  std::uint64_t pss_bytes = 0;
  // Of these, the anonymous_bytes; the rest are pages of the file. nullopt where the system does
  // not say it: other processes, forked since, share some of the copies.
  std::optional<std::uint64_t> pss_anonymous_bytes;

  // Page faults since the Checkpoint was opened. The system counts them for a process, not for a
  // mapping: these are of all threads and of all memory. In a process that was forked since, its
  // own.
  std::uint64_t minor_faults_since_open = 0;  // found their page in memory
  std::uint64_t major_faults_since_open = 0;  // waited for the disk

  // Up to eight ranges of 2 MiB that are cached as a whole are mapped for a moment, to see how the
  // cache holds them. `sampled_bytes` of them, `sampled_huge_bytes` in one piece of 2 MiB each.
  std::uint64_t sampled_bytes = 0;
  std::uint64_t sampled_huge_bytes = 0;
  // The cache holds most of the sample in small pieces, which cost a page fault each, although this
  // kernel and file system could do better: repair() does. nullopt where this cannot be known,
  // because no range is cached as a whole, or because the system is not known to use large pieces
  // (Linux does for ext4 since 6.16 and for XFS since 5.18) and none of this file was seen.
  std::optional<bool> is_fragmented;
};

// A range of the file. Counts bytes of the range, not the whole pages that it begins and ends in.
struct RangeResidency {
  std::uint64_t file_offset = 0;   // of the first byte
  std::uint64_t extent_bytes = 0;  // its length
  std::uint64_t cached_bytes = 0;  // of the extent, in the page cache

  // Of the extent, as for the whole file: what two mappings of this Checkpoint hold, its own and
  // that of copy_on_write(), counts twice. nullopt where the system does not say it of a part of a
  // mapping: huge_mapped_bytes before Linux 6.7, and all of them in some sandboxes.
  std::optional<std::uint64_t> resident_bytes;
  std::optional<std::uint64_t> anonymous_bytes;
  std::optional<std::uint64_t> huge_mapped_bytes;
};

// From the first to the last element that the strides reach.
struct TensorResidency : RangeResidency {
  std::size_t index = 0;  // position in Checkpoint::tensors()
};

struct StorageResidency : RangeResidency {
  std::string key;  // "0" for data/0
};

struct ResidencyReport {
  Residency file;
  std::vector<TensorResidency> tensors;    // one for each of Checkpoint::tensors(), in their order
  std::vector<StorageResidency> storages;  // the same of Checkpoint::storage()
};

// Looks, and brings nothing in: no tensor is read, and none becomes mapped. Costs up to 0.1 us for
// each 4 KiB of the file; little where the cache holds it in large pieces, or not at all. Fails
// with io if the system does not tell. What is cached and what is mapped are seen one after the
// other.
WEIGHTMAP_API Result<ResidencyReport> residency(const Checkpoint& checkpoint);

struct EvictReport {
  std::uint64_t file_bytes = 0;
  std::uint64_t cached_before = 0;
  std::uint64_t cached_after = 0;
  // Why the rest stays. If neither explains it, a process has it mapped or locked: perhaps a
  // Checkpoint that has been read from, in this process or another.
  std::uint64_t unwritten_bytes = 0;  // not on the disk yet; sync(1) and try again
  bool lives_in_memory = false;       // tmpfs and its like: the cache is all there is of the file
};

// Asks the system to drop a file, any regular file, from the page cache. That some of it stays is
// no error: look at `cached_after`. Fails with io if the file cannot be opened or the system does
// not tell, with not_a_checkpoint if it is empty or no regular file.
WEIGHTMAP_API Result<EvictReport> evict(const std::filesystem::path& path);

struct RepairReport {
  EvictReport evicted;
  std::uint64_t read_bytes = 0;         // read again
  std::uint64_t huge_mapped_bytes = 0;  // of them, now in pieces of 2 MiB
  std::uint64_t cached_bytes = 0;       // of the whole file, afterwards
};

// Evicts a file and reads again, in pieces of 2 MiB where the system has them, the ranges of 2 MiB
// that any of it was cached in; behind each run of them the system may read ahead as much. What a
// process has mapped cannot be repaired. `progress` gets the bytes read and the bytes to read.
// Fails as evict() does, with unsupported before Linux 5.14, and with io if the disk fails or the
// file is cut short meanwhile.
WEIGHTMAP_API Result<RepairReport> repair(
    const std::filesystem::path& path,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress = {});

}  // namespace weightmap
