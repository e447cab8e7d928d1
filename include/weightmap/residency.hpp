// Tells what of a checkpoint is in memory, and evicts it from there.
//
//   auto report = weightmap::residency(checkpoint);
//   if (!report) return fail(report.error());
//   report->file.cached_bytes;                    // a read of these needs no disk
//   auto evicted = weightmap::evict("model.pt");  // the next read is a cold one
//
// All sizes are in bytes. All figures are of one moment: the system and other processes change them
// at any time. Reports are plain values; they do not refer to the Checkpoint. All functions may be
// called from any thread, also while others read tensors.
//
// The system tells what is cached only to the file's owner and to those who may write to it. For
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

// All files of the checkpoint.
struct Residency {
  std::uint64_t file_bytes = 0;
  // Bytes of the files in the page cache, whichever process read them.
  std::uint64_t cached_bytes = 0;

  // RSS: what is in the page table of this process, through the mappings of this Checkpoint, in
  // whole pages. Reading these bytes does not even cost a page fault. Of a file that is cached,
  // this is what has been touched so far.
  std::uint64_t resident_bytes = 0;
  // Of these, this process's own private memory, copied by writing. The rest are the pages of the
  // file, which are shared with the page cache.
  std::uint64_t anonymous_bytes = 0;
  std::uint64_t huge_mapped_bytes = 0;  // of resident_bytes, mapped 2 MiB at a time
  // PSS: the resident pages, each divided by the number of processes that have it mapped.
  std::uint64_t pss_bytes = 0;
  // The part of pss_bytes that is anonymous; the rest are pages of the file. nullopt where the
  // system does not tell, because processes that were forked since share some of the copies.
  std::optional<std::uint64_t> pss_anonymous_bytes;

  // Page faults since the Checkpoint was opened. The system counts them for a process and not for a
  // mapping, so these are of all threads and of all memory. A process that was forked since counts
  // its own.
  std::uint64_t minor_faults_since_open = 0;  // found their page in memory
  std::uint64_t major_faults_since_open = 0;  // waited for the disk

  // Up to eight ranges of the size of a huge page that are cached as a whole are mapped for a
  // moment, to see how the cache holds them: sampled_bytes is their size, and sampled_huge_bytes
  // that of those which are held in one huge page.
  std::uint64_t sampled_bytes = 0;
  std::uint64_t sampled_huge_bytes = 0;
  // Whether the cache holds most of the sample in small pages, which cost a page fault each,
  // although this kernel and file system could use huge pages; repair() makes them do so. nullopt
  // where this cannot be known, because no range is cached as a whole, or because the system is not
  // known to use huge pages for files (Linux does for ext4 since 6.16 and for XFS since 5.18) and
  // none was seen.
  std::optional<bool> is_fragmented;
};

// A range of a file. What is counted are bytes of the range, not the whole pages that it begins
// and ends in.
struct RangeResidency {
  std::size_t source = 0;          // the file: position among Checkpoint::source()
  std::uint64_t file_offset = 0;   // of the first byte
  std::uint64_t extent_bytes = 0;  // length of the range
  std::uint64_t cached_bytes = 0;  // of the range, in the page cache

  // As for the whole file. What two mappings of this Checkpoint hold, its own and that of
  // copy_on_write(), counts twice. nullopt where the system does not tell it of a part of a
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
  std::vector<TensorResidency> tensors;    // one for each of Checkpoint::tensors(), in their order
  std::vector<StorageResidency> storages;  // one for each of Checkpoint::storage(), in their order
};

// Returns what of the checkpoint is in memory. It only looks: no tensor is read, and none becomes
// mapped. That costs up to 0.1 us for each page of the file, and little where the cache holds the
// file in huge pages or not at all. What is cached and what is mapped are looked at one after the
// other. Fails with io if the system does not tell.
WEIGHTMAP_API Result<ResidencyReport> residency(const Checkpoint& checkpoint);

// Residency::anonymous_bytes alone, which costs less and any user may ask for. Fails with io if the
// system does not tell.
WEIGHTMAP_API Result<std::uint64_t> anonymous_bytes(const Checkpoint& checkpoint);

struct EvictReport {
  std::uint64_t file_bytes = 0;
  std::uint64_t cached_before = 0;
  std::uint64_t cached_after = 0;
  // Why the rest stays. If neither of these explains it, a process has the file mapped or locked:
  // perhaps a Checkpoint that has been read from, in this process or in another one.
  std::uint64_t unwritten_bytes = 0;  // not on the disk yet; sync(1) and try again
  bool lives_in_memory = false;       // the file is on tmpfs or the like, and has no other place
};

// Asks the system to drop a file, which may be any regular file, from the page cache; of an index
// of shards or a folder all files of its checkpoint, of which the report has the sums. That some of
// it stays is not an error: look at `cached_after`. Fails with io if the file cannot be opened or
// the system does not tell what is cached, with not_a_checkpoint if the file is empty or not a
// regular file.
// `progress` is called by this thread, with how far into the file the request has come.
WEIGHTMAP_API Result<EvictReport> evict(const std::filesystem::path& path,
                                        const Progress& progress = {});

struct RepairReport {
  EvictReport evicted;
  std::uint64_t read_bytes = 0;         // what was read again
  std::uint64_t huge_mapped_bytes = 0;  // the part of read_bytes that is now held in huge pages
  std::uint64_t cached_bytes = 0;       // of the whole file, afterwards
};

// Evicts a file, and reads again, in huge pages where the system has them, each range of the size
// of a huge page of which anything was cached. The system may read ahead as much behind each run of
// such ranges. What a process has mapped cannot be repaired. `progress` is called by this thread,
// with the bytes read; cancelled, it leaves the rest evicted. Fails as evict() does, with
// unsupported before Linux 5.14, and with io if the disk fails or the file is truncated meanwhile.
WEIGHTMAP_API Result<RepairReport> repair(const std::filesystem::path& path,
                                          const Progress& progress = {});

}  // namespace weightmap
