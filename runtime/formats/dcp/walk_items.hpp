// Finds the items of a .distcp file without the metadata that names their places.
#pragma once

#include <functional>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/base/bytes/byte_source.hpp"
#include "weightmap/result.hpp"

namespace weightmap::dcp {

// Calls `visit` for each of the archives that lie back to back in the file, from the last one to
// the first; its failure ends the walk. Fails with corrupt at the first byte, from the end, that is
// of none: the file is truncated, or something lies between two items.
Result<void> for_each_item(const bytes::ByteSource& file,
                           const std::function<Result<void>(ByteRange item)>& visit);

}  // namespace weightmap::dcp
