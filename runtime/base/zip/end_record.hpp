// The records at the very end of an archive, which locate its directory.
//
// torch always writes three: the zip64 end record (56 bytes), its locator (20) and the classic end
// record (22), so the last 98 bytes of a genuine file have a known form. Other writers may omit the
// first two and may append a comment. Where there are several end records, or they disagree,
// existing readers choose different ones; this reader refuses the file.
#pragma once

#include <cstdint>

#include "runtime/base/bytes/read_cache.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

struct EndOfArchive {
  std::uint64_t directory_offset;  // absolute
  std::uint64_t directory_size;
  std::uint64_t record_count;   // at most directory_size / 46
  std::uint64_t archive_start;  // bytes before the archive
};

// Reads the tail of the file as one window. Fails with not_a_checkpoint if there is no end record,
// and with corrupt for a second archive before this one, unless that is `expected`.
Result<EndOfArchive> find_end_of_archive(bytes::ReadCache& cache, bool expected = false);

// Refuses a file that begins with an archive if its directory places the first record elsewhere.
Result<void> check_prefix(bytes::ReadCache& cache, std::uint64_t first_header);

}  // namespace weightmap::zip
