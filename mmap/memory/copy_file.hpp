// Copies a file into shared memory without leaving a second copy in the page cache.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

struct CopyReport {
  std::uint64_t direct_bytes = 0;   // read past the page cache
  std::uint64_t cached_bytes = 0;   // copied from the page cache, where they were before
  std::uint64_t dropped_bytes = 0;  // read through the page cache, and dropped from it afterwards
  std::string why_not_direct;  // the file system's refusal of direct reads; empty if there was none
  std::uint64_t huge_bytes = 0;  // part of the copy in pages of 2 MiB
};

// The number of concurrent reads: enough for a local disk, and for a server. Each has a thread,
// which needs only pread() and costs nothing while it waits for a server.
inline constexpr unsigned local_reads = 8;
inline constexpr unsigned network_reads = 32;

// Decides by statfs's type. An unknown file system counts as remote, since too many reads cost
// memory for a moment and too few cost time.
unsigned reads_of_file_system(std::uint64_t type) noexcept;
unsigned reads_at_a_time(const os::File& file) noexcept;  // of the one that the file is in

// Fills `memory`, a new file of the same size that lives in memory, with the content of `source`.
// Cached bytes are copied; others are read past the cache or, if the file system refuses that,
// through the cache and dropped from it. Requests huge pages, but works without them. Leaves no
// mapping of either file. `progress` is called by this thread.
//
// Fails with io if the disk fails, memory runs out, or the source is truncated, with cancelled if
// `progress` returns false. The caller has to check whether the source was written to meanwhile.
Result<CopyReport> copy_to_memory(const os::File& source, int memory, const Progress& progress);

}  // namespace weightmap::mmap
