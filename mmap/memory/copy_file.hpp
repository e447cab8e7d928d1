// Copying a file into shared memory without leaving a second copy in the page cache.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/os/file/file.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

struct CopyReport {
  std::uint64_t direct_bytes = 0;   // read past the page cache
  std::uint64_t cached_bytes = 0;   // copied from the page cache, where they were already
  std::uint64_t dropped_bytes = 0;  // read through the page cache, and dropped from it again
  std::string why_not_direct;    // what the file system says to direct reads; empty if it does them
  std::uint64_t huge_bytes = 0;  // of the copy, in pages of 2 MiB
};

// How many reads are under way at a time: enough for a disk of the machine, and for what answers
// over a network. Each has a thread, which needs no more of the system than pread(), and costs
// nothing while it waits for a remote file system.
inline constexpr unsigned local_reads = 8;
inline constexpr unsigned network_reads = 32;

// By what statfs says of a file system. One that is not known to be local counts as remote, since
// too many reads cost memory for a moment and too few cost time.
unsigned reads_of_file_system(std::uint64_t type) noexcept;

// Fills `memory`, a new file of the same size that lives in memory, with what `source` holds. What
// is cached is copied; the rest is read past the cache, or where the file system refuses that
// through the cache and dropped from there. Asks for huge pages, and takes what it gets. No
// mapping of either file is left. `progress` is called by this thread.
//
// Fails with io if the disk fails, memory runs out, or the source is truncated, with cancelled if
// `progress` says so; one that is written to meanwhile the caller has to notice.
Result<CopyReport> copy_to_memory(const os::File& source, int memory, const Progress& progress);

}  // namespace weightmap::mmap
