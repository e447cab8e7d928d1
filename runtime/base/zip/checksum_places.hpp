// Finds the CRC-32 fields of a record, for changes of records in place.
#pragma once

#include <cstdint>

#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/zip/directory.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

// Absolute offsets, four bytes each.
struct ChecksumPlaces {
  std::uint64_t in_descriptor;  // behind the payload
  std::uint64_t in_directory;
};

// Checks that both places belong to the record. The checksums themselves may differ, since a
// process may have been stopped between the two writes. Precondition: the record is one of
// directory.records(), and its payload is at `payload`. Fails with unsupported for a record without
// a descriptor, which torch never writes; with corrupt if the descriptor does not match.
Result<ChecksumPlaces> checksum_places(const bytes::ByteSource& file, const Directory& directory,
                                       const Record& record, std::uint64_t payload);

}  // namespace weightmap::zip
