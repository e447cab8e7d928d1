// How long the elements of an array are, also of those that no tensor has.
#pragma once

#include <cstdint>

#include "runtime/formats/npz/array_header.hpp"
#include "weightmap/result.hpp"

namespace weightmap::npz {

// The bytes of all elements: where the array ends behind its header. Fails with unsupported for a
// type that is not known, with corrupt for more than 64 bits count.
Result<std::uint64_t> elements_bytes(const ArrayHeader& header);

}  // namespace weightmap::npz
