// Where a pickle ends that is followed by something else.
//
// Only the lengths of opcodes are looked at, in pieces of the file, so that a pickle can be read
// whole into memory of its own size before it is run.
#pragma once

#include <cstdint>

#include "runtime/bytes/read_cache.hpp"
#include "weightmap/result.hpp"

namespace weightmap::pickle {

// The offset behind the STOP of the pickle that begins at `offset` of the source. Fails with
// corrupt at a byte that is no opcode, or if the source ends first; with limit_exceeded if there is
// no STOP in the first `most_bytes`.
Result<std::uint64_t> find_end(bytes::ReadCache& cache, std::uint64_t offset,
                               std::uint64_t most_bytes);

}  // namespace weightmap::pickle
