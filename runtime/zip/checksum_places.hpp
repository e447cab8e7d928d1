// Where in the file the CRC-32 of a record stands, for those who change records in place.
#pragma once

#include <cstdint>

#include "runtime/bytes/byte_source.hpp"
#include "runtime/zip/directory.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

// Absolute offsets of four bytes each.
struct ChecksumPlaces {
  std::uint64_t in_descriptor;  // behind the payload
  std::uint64_t in_directory;
};

// Looks at both, whether they belong to the record; what the checksums are does not count, so
// somebody may have been stopped between the two. Precondition: the record is one
// of directory.records(), and its payload is at `payload`. Fails with unsupported for a record
// without a descriptor, which torch never writes; with corrupt if something else stands there.
Result<ChecksumPlaces> checksum_places(const bytes::ByteSource& file, const Directory& directory,
                                       const Record& record, std::uint64_t payload);

}  // namespace weightmap::zip
