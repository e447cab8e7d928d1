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

  // In the page table of this process, through the mappings of this Checkpoint: reading these does
  // not even cost a page fault. Of a file that is cached, this is what has been touched so far.
  std::uint64_t resident_bytes = 0;
  std::uint64_t huge_mapped_bytes = 0;  // of these, mapped 2 MiB at a time
  std::uint64_t pss_bytes = 0;  // each page divided by the number of processes that have it mapped
  std::uint64_t anonymous_bytes = 0;  // copied by writing to private memory

  // Up to eight ranges of 2 MiB that are cached as a whole are mapped for a moment, to see how the
  // cache holds them. `sampled_bytes` of them, `sampled_huge_bytes` in one piece of 2 MiB each.
  std::uint64_t sampled_bytes = 0;
  std::uint64_t sampled_huge_bytes = 0;
  // The cache holds most of the sample in small pieces, which cost a page fault each, although this
  // kernel and file system could do better: repair() does. nullopt where this cannot be known,
  // because no range is cached as a whole or the system is not known to use large pieces.
  std::optional<bool> is_fragmented;
};

struct TensorResidency {
  std::size_t index = 0;           // position in Checkpoint::tensors()
  std::uint64_t file_offset = 0;   // of the first element
  std::uint64_t extent_bytes = 0;  // from the first to the last element that the strides reach
  std::uint64_t cached_bytes = 0;  // of the extent
};

struct ResidencyReport {
  Residency file;
  std::vector<TensorResidency> tensors;  // one for each of Checkpoint::tensors(), in their order
};

// Looks, and brings nothing in: no tensor is read, and none becomes mapped. Costs up to 0.1 us for
// each 4 KiB of the file; little where the cache holds it in large pieces, or not at all. Fails
// with io if the system does not tell.
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
