// Finds the end of a pickle that is followed by other data.
//
// It reads only the lengths of opcodes, in pieces of the file, so that the caller can then read the
// whole pickle into memory of its exact size.
#pragma once

#include <cstdint>

#include "runtime/base/bytes/read_cache.hpp"
#include "weightmap/result.hpp"

namespace weightmap::pickle {

// Returns the offset behind the STOP of the pickle that begins at `offset` of the source. Fails
// with corrupt at a byte that is no opcode, or if the source ends first; with limit_exceeded if
// there is no STOP in the first `most_bytes`.
Result<std::uint64_t> find_end(bytes::ReadCache& cache, std::uint64_t offset,
                               std::uint64_t most_bytes);

}  // namespace weightmap::pickle
