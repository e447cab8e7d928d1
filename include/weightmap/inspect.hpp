// Looks at a checkpoint, and changes nothing of it: which parts are in memory, what numbers its
// tensors have, in which elements two tensors differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

// Which parts of a checkpoint are in memory, and their eviction.
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
  // Backing::copy_on_write(), count twice. nullopt if the system does not report them for a part of
  // a mapping: huge_mapped_bytes before Linux 6.7, and all three in some sandboxes.
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
  std::vector<StorageResidency> storages;  // in the order of Backing::storage(), one each
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

// Statistics of a tensor's elements: range, mean, NaNs.
//
//   const auto found = weightmap::statistics(checkpoint.get("norm.weight")->view);
//   if (!found) return tl::unexpected(found.error());
//   found->mean;                                  // of the finite elements
//   found->nan + found->infinite;                 // the others
//
// Stored elements are read once, however often strides repeat them: the repetitions are counted
// first, which takes 8 bytes of memory for each stored element, and time proportional to their
// number times the rank. Counts, minima and maxima are exact, also for 64-bit integers, and so is
// the sum behind the mean of integers. The rest is computed in double: floats of one or two bytes
// by the frequency of each value, wider ones in blocks of 4096 elements around each block's mean,
// which are then combined. The error of mean and std is a few units in the last of double's 15
// digits for each thousand blocks, whatever the mean is.

// An element's value: an integer for integer types, otherwise a double.
using Number = std::variant<std::int64_t, std::uint64_t, double>;

// Plain values. A bool counts as 0 or 1, and -0 as a zero.
struct TensorStatistics {
  std::uint64_t count = 0;     // elements
  std::uint64_t nan = 0;       // NaNs among them
  std::uint64_t infinite = 0;  // of either sign
  std::uint64_t zeros = 0;
  // Over the finite elements; unset if there are none.
  std::optional<Number> min;
  std::optional<Number> max;
  // ... and unset if the sum leaves the range of double: above 1e150 or so.
  std::optional<double> mean;
  std::optional<double> std;  // divided by their number, not by one less
};

// May be called from any thread; from 8 MiB on, up to eight threads work until it returns, and the
// figures do not depend on their number. `progress` is called by the calling thread, about once per
// MiB. Reads the mapping, which raises SIGBUS if the file was truncated. Fails with unsupported for
// complex numbers, which have no order, for quantized and packed types, which do not store their
// values, and for lazy negatives.
WEIGHTMAP_API Result<TensorStatistics> statistics(const TensorView& view,
                                                  const Progress& progress = {});

// Counts the elements in which two tensors differ, and by how much.
//
//   const auto found = weightmap::difference(before.view, after.view);
//   if (!found) return tl::unexpected(found.error());
//   found->differing;                             // of found->count elements
//   found->largest;                               // |a - b|, at the element found->at
//
// Elements of one type differ if their bits do, so no difference means identical bytes. For two
// floating point types, such as float32 and bfloat16 after a conversion, values are compared: zeros
// of both signs are equal, and so are all NaNs. Integers are compared exactly, including 64-bit
// ones; other differences are computed in double, for complex numbers as the modulus. Quantized and
// packed types do not store their values, so only their bits are compared.

// A plain value without references.
struct TensorDifference {
  std::uint64_t count = 0;      // elements of each tensor
  std::uint64_t differing = 0;  // of these
  // Differing elements of equal value, such as zeros of different sign, different NaNs, or
  // different bytes of a true bool.
  std::uint64_t same_value = 0;
  // Differing elements that are NaN or infinite in one of the tensors.
  std::uint64_t not_finite = 0;
  // The largest |a - b| of all others, infinite beyond the range of double; unset if there are
  // none. For integers it is a std::uint64_t.
  std::optional<Number> largest;
  // The index, along each dimension, of the first element in row-major order with this difference.
  std::vector<std::int64_t> at;
};

// May be called from any thread; from 8 MiB on, up to eight threads work until it returns, and the
// result does not depend on their number. `progress` is called by the calling thread, about once
// per MiB of `a`. Data that is in the mapping without gaps and in this machine's byte order is read
// there, as by statistics(); other data in copies of at most 1 MiB. Reads the mappings, which
// raises SIGBUS if a file was truncated. Fails with invalid_argument if the shapes differ; with
// unsupported for two different types unless both are floating point, and if only one tensor has a
// lazy bit; with limit_exceeded if the strides of both repeat the stored elements more often than
// OpenOptions::repeats allows, not counting dimensions along which both have stride 0, unless equal
// strides repeat equal bytes.
WEIGHTMAP_API Result<TensorDifference> difference(const TensorView& a, const TensorView& b,
                                                  const Progress& progress = {});

// Returns true if two tensors have the same type, shape and bits. Works like difference(), but in
// this thread, and stops at the first different element.
WEIGHTMAP_API Result<bool> same_bits(const TensorView& a, const TensorView& b,
                                     const Progress& progress = {});

}  // namespace weightmap
