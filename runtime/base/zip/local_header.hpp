// A record's local file header: the 30 bytes and the name before its payload.
//
// It repeats the directory's entry. Where the two differ, existing readers disagree, so a
// difference is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/zip/record.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

// Returns the length of the part to read: up to the end of the name.
std::uint64_t local_header_length(const Record& record) noexcept;

// Compares `header`, local_header_length() bytes from record.header_offset, with the directory.
// Returns the absolute offset of the payload, which ends before `limit` (Directory::limit_of).
// Fails with corrupt.
Result<std::uint64_t> parse_local_header(std::span<const std::byte> header, const Record& record,
                                         std::uint64_t limit);

// Reads the header, unless a window has it, and does the same.
Result<std::uint64_t> read_local_header(bytes::ReadCache& cache, const Record& record,
                                        std::uint64_t limit);
Result<std::uint64_t> read_local_header(const bytes::ByteSource& source, const Record& record,
                                        std::uint64_t limit);

}  // namespace weightmap::zip
