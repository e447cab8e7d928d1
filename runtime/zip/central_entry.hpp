// One entry of the central directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/zip/record.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

// Where an entry stands, for messages and for its offsets.
struct EntryPlace {
  std::uint64_t offset;         // absolute, of the entry
  std::uint64_t archive_start;  // what its header offset counts from
};

// Parses the entry at the front of `rest` (the directory from here to its end) and writes it to
// `record`, whose name points into `rest`. Answers the length of the entry. Checks all that the
// entry alone can show: method, flags, sizes, zip64 field, name.
Result<std::size_t> parse_entry(std::span<const std::byte> rest, const EntryPlace& place,
                                Record& record);

}  // namespace weightmap::zip
