// A record's local file header: the 30 bytes and the name in front of its payload.
//
// It repeats what the directory says. Where the two differ, readers of the world differ in what
// they see, so that is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/bytes/read_cache.hpp"
#include "runtime/zip/record.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

// Length of the part that is read: up to the end of the name.
std::uint64_t local_header_length(const Record& record) noexcept;

// Compares `header`, local_header_length() bytes from record.header_offset, with the directory and
// answers the absolute offset of the payload, which ends before `limit` (Directory::limit_of).
// Fails with corrupt.
Result<std::uint64_t> parse_local_header(std::span<const std::byte> header, const Record& record,
                                         std::uint64_t limit);

// The same after one read, if no window has it.
Result<std::uint64_t> read_local_header(bytes::ReadCache& cache, const Record& record,
                                        std::uint64_t limit);
Result<std::uint64_t> read_local_header(const bytes::ByteSource& source, const Record& record,
                                        std::uint64_t limit);

}  // namespace weightmap::zip
