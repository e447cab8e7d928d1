// One range of a file, read by several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/bytes/source.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Fills `out` from `offset` with up to `threads` reads in parallel, the caller's thread included;
// fewer if the range is short or the system gives no more threads. Answers the first failure in the
// order of the file.
Result<void> parallel_read(const bytes::Source& source, std::uint64_t offset,
                           std::span<std::byte> out, unsigned threads);

}  // namespace weightmap
